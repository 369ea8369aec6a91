/* Which windows the tuples of a batch belong to: opens, finds and closes them.
 *
 * With `replay` set, only windows already in the table take tuples, each only those of batches after
 * its own footprint; nothing opens and nothing closes.
 */
#include "table.h"

enum { INDEX_AHEAD = 24, SLOT_AHEAD = 16, LIST_AHEAD = 6, BROKEN = 64 };

/* `footprint`: what windows opened in this batch are given, NO_BATCH if nothing is written for them. */
typedef struct { int64_t size, slide, batch, replay, footprint; } tm_count_windows;
typedef struct { int64_t size, slide, batch, replay, footprint, late_before; } tm_time_windows;

/* Brings the index entry, then the slot, then what closing the window will touch, into the cache. */
PREFETCHING look_ahead(const tm_table *t, const tm_keys *keys, int64_t row, int64_t size) {
    if (row + INDEX_AHEAD >= keys->count) return;
    prefetch_index(t, keys->hashes[row + INDEX_AHEAD]);
    prefetch_found(t, keys->hashes[row + SLOT_AHEAD]);
    uint64_t entry = t->index[keys->hashes[row + LIST_AHEAD] & (uint64_t)t->header->index_mask];
    if (!entry) return;
    const tm_slot *s = slot_at(t, (int64_t)(entry >> 32));
    if (s->fill + 1 != size) return;
    if (s->older) __builtin_prefetch(slot_at(t, s->older), 1);
    if (s->newer) __builtin_prefetch(slot_at(t, s->newer), 1);
}

/* One window per key (slide >= size): window[row] is its number, -1 where the tuple is in none. */
int64_t tm_disjoint_count(tm_table *t, const tm_keys *keys, const tm_count_windows *spec, int64_t from,
                          tm_local *local, int32_t *window, int32_t *need) {
    *need = 0;
    for (int64_t row = from; row < keys->count; row++) {
        uint64_t hash = keys->hashes[row];
        int64_t slot;
        look_ahead(t, keys, row, spec->size);
        int64_t at = index_find(t, hash, keys, row, 0, 0, &slot);
        tm_slot *s = slot ? slot_at(t, slot) : NULL;
        window[row] = -1;
        if (spec->replay) {
            if (!s || s->footprint >= spec->batch) continue;
            if (local->capacity == local->count) { *need = NEED_WINDOWS; return row; }
            if (s->fill + 1 >= spec->size) { *need = BROKEN; return row; }
            int32_t number = local_number(s, slot, 1, local);
            if (++s->fill > 0) window[row] = number;
            continue;
        }
        if (local->capacity - local->count < 2) { *need = NEED_WINDOWS; return row; }
        int is_prior = 1;
        if (!s) {
            if ((*need = table_room(t, keys, row, 1))) return row;
            s = table_new_slot(t, hash, keys, row, 0, &slot);
            index_set(t, at, hash, slot);
            t->header->indexed++;
            s->opened = VACANT;
        }
        if (s->opened == VACANT) {
            open_window(t, slot, s, spec->batch, spec->footprint, 0);
            is_prior = 0;
        }
        int32_t number = local_number(s, slot, is_prior, local);
        if (++s->fill > 0) window[row] = number;
        if (s->fill == spec->size) {
            local->is_closed[number] = 1;
            close_window(t, s);
            if (spec->slide > spec->size) {     /* the next window opens by counting the tuples of the gap */
                open_window(t, slot, s, spec->batch, spec->footprint, spec->size - spec->slide);
                local_number(s, slot, 0, local);
            }
        }
    }
    return keys->count;
}

/* Several windows per key (slide < size), chained from the newest, which is the one in the index. */
int64_t tm_overlapping_count(tm_table *t, const tm_keys *keys, const tm_count_windows *spec, int64_t from,
                             tm_local *local, tm_pairs *pairs, int32_t *need) {
    int64_t most = (spec->size + spec->slide - 1) / spec->slide + 1;
    *need = 0;
    for (int64_t row = from; row < keys->count; row++) {
        uint64_t hash = keys->hashes[row];
        int64_t newest, slot;
        if (pairs->capacity - pairs->count < most) { *need = NEED_PAIRS; return row; }
        if (local->capacity - local->count < most) { *need = NEED_WINDOWS; return row; }
        look_ahead(t, keys, row, spec->size);
        int64_t at = index_find(t, hash, keys, row, 0, 0, &newest);
        if (!spec->replay && (!newest || slot_at(t, newest)->fill == spec->slide)) {
            if ((*need = table_room(t, keys, row, !newest))) return row;
            int64_t start = newest ? *key_start(t, slot_at(t, newest)) + spec->slide : 0;
            tm_slot *s = table_new_slot(t, hash, keys, row, start, &slot);
            s->chain = (uint32_t)newest;
            open_window(t, slot, s, spec->batch, spec->footprint, 0);
            local_number(s, slot, 0, local);
            if (!newest) t->header->indexed++;
            index_set(t, at, hash, slot);
            newest = slot;
        }
        tm_slot *newer = NULL;
        int64_t met = 0;
        for (slot = newest; slot; ) {
            tm_slot *s = slot_at(t, slot);
            int64_t next = s->chain;
            if (++met > most) { *need = BROKEN; return row; }
            if (!spec->replay || s->footprint < spec->batch) {
                if (spec->replay && s->fill + 1 >= spec->size) { *need = BROKEN; return row; }
                int32_t number = local_number(s, slot, 1, local);
                pairs->row[pairs->count] = (int32_t)row;
                pairs->window[pairs->count++] = number;
                if (++s->fill == spec->size) {  /* always the oldest of the chain, and never the only one */
                    if (!newer) { *need = BROKEN; return row; }
                    local->is_closed[number] = 1;
                    newer->chain = (uint32_t)next;
                    close_window(t, s);
                    s = newer;
                }
            }
            newer = s;
            slot = next;
        }
    }
    return keys->count;
}

/* Time windows: `is_late[row]` is set for tuples all of whose windows have closed. */
int64_t tm_time_pairs(tm_table *t, const tm_keys *keys, const tm_time_windows *spec, const int64_t *times,
                      int64_t from, tm_local *local, tm_pairs *pairs, uint8_t *is_late, int64_t *late_pairs,
                      int32_t *need) {
    int64_t most = (spec->size + spec->slide - 1) / spec->slide;
    *need = 0;
    for (int64_t row = from; row < keys->count; row++) {
        if (pairs->capacity - pairs->count < most) { *need = NEED_PAIRS; return row; }
        if (local->capacity - local->count < most) { *need = NEED_WINDOWS; return row; }
        if (row + SLOT_AHEAD < keys->count) {
            int64_t ahead = last_start(times[row + SLOT_AHEAD], spec->slide);
            prefetch_found(t, finish64(absorb64(keys->hashes[row + SLOT_AHEAD], (uint64_t)ahead)));
        }
        int64_t first_pair = pairs->count, late = 0;
        for (int64_t start = last_start(times[row], spec->slide); start + spec->size > times[row];
             start -= spec->slide) {
            if (start + spec->size <= spec->late_before) { late++; continue; }
            uint64_t hash = finish64(absorb64(keys->hashes[row], (uint64_t)start));
            int64_t slot, at = index_find(t, hash, keys, row, 1, start, &slot);
            tm_slot *s = slot ? slot_at(t, slot) : NULL;
            if (spec->replay && (!s || s->footprint >= spec->batch)) continue;
            int is_prior = 1;
            if (!s) {
                if ((*need = table_room(t, keys, row, 1) | (starts_room(t) ? 0 : NEED_STARTS))) {
                    pairs->count = first_pair;  /* windows opened for this tuple stay, and are found again */
                    return row;
                }
                s = table_new_slot(t, hash, keys, row, start, &slot);
                index_set(t, at, hash, slot);
                t->header->indexed++;
                open_window(t, slot, s, spec->batch, spec->footprint, 0);
                starts_push(t, start, slot, s);
                is_prior = 0;
            }
            pairs->row[pairs->count] = (int32_t)row;
            pairs->window[pairs->count++] = local_number(s, slot, is_prior, local);
        }
        if (late && !spec->replay) {
            *late_pairs += late;
            is_late[row] = pairs->count == first_pair;
        }
    }
    return keys->count;
}

/* Puts windows back from their footprints, given from the oldest footprint on. Returns how many were
 * put; `chained` keeps windows of one key in order of their starts, `by_start` finds them by start. */
int64_t tm_insert(tm_table *t, const tm_keys *keys, int32_t by_start, int32_t chained, const int64_t *starts,
                  const int64_t *opened, const int64_t *footprints, const int64_t *fills,
                  const uint8_t *states, int64_t from, int64_t *slots, int32_t *need) {
    int64_t bytes = t->header->state_bytes;
    *need = 0;
    for (int64_t row = from; row < keys->count; row++) {
        int64_t start = starts ? starts[row] : 0, newest, slot;
        uint64_t hash = keys->hashes[row];
        if (by_start) hash = finish64(absorb64(hash, (uint64_t)start));
        int64_t at = index_find(t, hash, keys, row, by_start, start, &newest);
        tm_slot *newer = NULL;
        int64_t older = newest;
        while (chained && older && *key_start(t, slot_at(t, older)) > start) {
            newer = slot_at(t, older);
            older = newer->chain;
        }
        if (older && (!chained || *key_start(t, slot_at(t, older)) == start)) { *need = BROKEN; return row; }
        if ((*need = table_room(t, keys, row, !newest) | (by_start && !starts_room(t) ? NEED_STARTS : 0))) return row;
        tm_slot *s = table_new_slot(t, hash, keys, row, start, &slot);
        s->opened = (int32_t)opened[row];
        s->footprint = (int32_t)footprints[row];
        s->fill = fills ? (int32_t)fills[row] : 0;
        copy_words(slot_state(t, s), states + row * bytes, bytes);
        list_push_newest(t, slot, s);
        t->header->open_windows++;
        if (by_start) starts_push(t, start, slot, s);
        if (chained) s->chain = (uint32_t)older;
        if (newer) newer->chain = (uint32_t)slot; else index_set(t, at, hash, slot);
        if (!newest) t->header->indexed++;
        slots[row] = slot;
    }
    return keys->count;
}
