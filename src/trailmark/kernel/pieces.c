/* One piece of state per key, which stays until it is closed: finds, opens and closes them.
 *
 * With `replay` set, only pieces already in the table take tuples, each only those of batches after its
 * own footprint; nothing opens.
 */
#include "table.h"

enum { INDEX_AHEAD = 24, SLOT_AHEAD = 16 };

/* `footprint`: what pieces opened in this batch are given, NO_BATCH if nothing is written for them. */
typedef struct { int64_t batch, replay, footprint; } tm_key_pieces;

/* number[row] is the number of the row's piece in this batch, -1 where it is none of these. Stops before a
 * row there is no room for and returns it. */
int64_t tm_find_pieces(tm_table *t, const tm_keys *keys, const tm_key_pieces *spec, int64_t from, tm_local *local,
                       int32_t *number, int32_t *need) {
    *need = 0;
    for (int64_t row = from; row < keys->count; row++) {
        uint64_t hash = keys->hashes[row];
        int64_t slot;
        if (row + INDEX_AHEAD < keys->count) {
            prefetch_index(t, keys->hashes[row + INDEX_AHEAD]);
            prefetch_found(t, keys->hashes[row + SLOT_AHEAD]);
        }
        int64_t at = index_find(t, hash, keys, row, 0, 0, &slot);
        tm_slot *s = slot ? slot_at(t, slot) : NULL;
        number[row] = -1;
        if (spec->replay && (!s || s->footprint >= spec->batch)) continue;
        if (local->capacity == local->count) { *need = NEED_WINDOWS; return row; }
        int is_prior = 1;
        if (!s) {
            if ((*need = table_room(t, keys, row, 1))) return row;
            s = table_new_slot(t, hash, keys, row, 0, &slot);
            index_set(t, at, hash, slot);
            t->header->indexed++;
            open_window(t, slot, s, spec->batch, spec->footprint, 0);
            is_prior = 0;
        }
        number[row] = local_number(s, slot, is_prior, local);
    }
    return keys->count;
}

/* Numbers open pieces, given by their slots, in their order; `local` has room for all of them. */
void tm_meet_pieces(tm_table *t, const int64_t *slots, int64_t count, tm_local *local) {
    for (int64_t i = 0; i < count; i++) local_number(slot_at(t, slots[i]), slots[i], 1, local);
}

/* Closes the pieces of this batch that are said to be. */
void tm_close_pieces(tm_table *t, const tm_local *local) {
    for (int64_t w = 0; w < local->count; w++)
        if (local->is_closed[w]) close_window(t, slot_at(t, local->slot[w]));
}
