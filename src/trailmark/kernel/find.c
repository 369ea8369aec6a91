/* Finds windows and changes nothing: what a batch would touch is copied before it does. */
#include "table.h"

/* All windows of the keys of some rows, a key as often as it comes. Stops before a row whose windows have
 * no room and returns its number. */
int64_t tm_find_keys(const tm_table *t, const tm_keys *keys, int64_t from, int64_t *slots, int64_t capacity,
                     int64_t *found) {
    for (int64_t row = from; row < keys->count; row++) {
        int64_t slot, before = *found;
        index_find(t, keys->hashes[row], keys, row, 0, 0, &slot);
        for (; slot; slot = slot_at(t, slot)->chain) {
            if (*found == capacity) { *found = before; return row; }
            slots[(*found)++] = slot;
        }
    }
    return keys->count;
}

/* The same where windows of a key are found by their start: those that the time of a row is in. */
int64_t tm_find_times(const tm_table *t, const tm_keys *keys, int64_t size, int64_t slide, const int64_t *times,
                      int64_t from, int64_t *slots, int64_t capacity, int64_t *found) {
    for (int64_t row = from; row < keys->count; row++) {
        int64_t slot, before = *found;
        for (int64_t start = last_start(times[row], slide); start + size > times[row]; start -= slide) {
            uint64_t hash = finish64(absorb64(keys->hashes[row], (uint64_t)start));
            index_find(t, hash, keys, row, 1, start, &slot);
            if (!slot) continue;
            if (*found == capacity) { *found = before; return row; }
            slots[(*found)++] = slot;
        }
    }
    return keys->count;
}

/* All windows that end at or before the watermark; returns how many, at most as there are open ones. */
int64_t tm_find_ended(const tm_table *t, int64_t size, int64_t watermark, int64_t *slots) {
    int64_t count = 0;
    for (int64_t i = 0; i <= t->header->starts_mask; i++) {
        if (!t->starts[i].head || t->starts[i].start + size > watermark) continue;
        for (int64_t slot = t->starts[i].head; slot; slot = slot_at(t, slot)->chain) slots[count++] = slot;
    }
    return count;
}

/* Which identities are in a set of them; see tm_decide. */
void tm_are_in(const tm_table *t, const tm_keys *keys, const int64_t *starts, uint8_t *is_in) {
    for (int64_t row = 0; row < keys->count; row++) {
        int64_t start = starts ? starts[row] : 0, slot;
        uint64_t hash = keys->hashes[row];
        if (starts) hash = finish64(absorb64(hash, (uint64_t)start));
        index_find(t, hash, keys, row, starts != NULL, start, &slot);
        is_in[row] = slot != NO_SLOT;
    }
}
