/* Operations on the table that the window kernels share. */
#ifndef TRAILMARK_TABLE_H
#define TRAILMARK_TABLE_H

#include "kernel.h"

#define FREED (-3)

static inline void list_unlink(tm_table *t, tm_slot *s) {
    if (s->older) slot_at(t, s->older)->newer = s->newer; else t->header->oldest = s->newer;
    if (s->newer) slot_at(t, s->newer)->older = s->older; else t->header->newest = s->older;
}

static inline void list_push_oldest(tm_table *t, int64_t slot, tm_slot *s) {
    s->older = NO_SLOT;
    s->newer = (uint32_t)t->header->oldest;
    if (s->newer) slot_at(t, s->newer)->older = (uint32_t)slot; else t->header->newest = slot;
    t->header->oldest = slot;
}

static inline void list_push_newest(tm_table *t, int64_t slot, tm_slot *s) {
    s->newer = NO_SLOT;
    s->older = (uint32_t)t->header->newest;
    if (s->older) slot_at(t, s->older)->newer = (uint32_t)slot; else t->header->oldest = slot;
    t->header->newest = slot;
}

static inline int same_key(const tm_table *t, tm_slot *s, uint64_t hash, const tm_keys *keys, int64_t row) {
    if (s->hash != (uint32_t)hash) return 0;
    const uint8_t *a = slot_key(t, s), *b = keys->records + row * keys->record_bytes;
    for (int64_t at = 0; at < keys->record_bytes; at += 8) {       /* records are whole words */
        uint64_t ours, theirs;
        memcpy(&ours, a + at, 8);
        memcpy(&theirs, b + at, 8);
        if (ours != theirs) return 0;
    }
    if (!t->header->has_blob) return 1;
    const tm_blob *blob = key_blob(t, s);
    return blob->length == (uint64_t)keys->blob_lengths[row]
        && memcmp(t->heap + blob->offset, keys->blobs + keys->blob_offsets[row], blob->length) == 0;
}

/* Position of the key's entry in the index, or of the empty entry where it belongs (then *found = 0).
 * `start` is compared where the start is part of what is looked up (`by_start`). */
static inline int64_t index_find(const tm_table *t, uint64_t hash, const tm_keys *keys, int64_t row,
                                 int by_start, int64_t start, int64_t *found) {
    int64_t mask = t->header->index_mask, at = (int64_t)(hash & (uint64_t)mask);
    for (uint64_t entry; (entry = t->index[at]) != 0; at = (at + 1) & mask) {
        if ((uint32_t)entry != (uint32_t)hash) continue;
        tm_slot *s = slot_at(t, (int64_t)(entry >> 32));
        if (by_start && *key_start(t, s) != start) continue;
        if (!same_key(t, s, hash, keys, row)) continue;
        *found = (int64_t)(entry >> 32);
        return at;
    }
    *found = NO_SLOT;
    return at;
}

static inline void index_set(tm_table *t, int64_t at, uint64_t hash, int64_t slot) {
    t->index[at] = ((uint64_t)slot << 32) | (uint32_t)hash;
}

PREFETCHING prefetch_slot(const tm_table *t, int64_t slot) {
    const uint8_t *bytes = (const uint8_t *)slot_at(t, slot);
    __builtin_prefetch(bytes, 1);
    if (t->header->stride > 64) __builtin_prefetch(bytes + t->header->stride - 1, 1);
}

PREFETCHING prefetch_found(const tm_table *t, uint64_t hash) {
    uint64_t entry = t->index[hash & (uint64_t)t->header->index_mask];
    if (entry) prefetch_slot(t, (int64_t)(entry >> 32));
}

PREFETCHING prefetch_index(const tm_table *t, uint64_t hash) {
    __builtin_prefetch(&t->index[hash & (uint64_t)t->header->index_mask]);
}

/* Where the last of the windows begins that a time is in. */
static inline int64_t last_start(int64_t time, int64_t slide) {
    int64_t rest = time % slide;
    return time - (rest < 0 ? rest + slide : rest);
}

/* The window's number in this batch; the first call for a window gives it one. */
static inline int32_t local_number(tm_slot *s, int64_t slot, int is_prior, tm_local *local) {
    if (s->mark) return (int32_t)(s->mark - 1);
    int64_t number = local->count++;
    local->slot[number] = slot;
    local->is_prior[number] = (uint8_t)is_prior;
    local->is_closed[number] = 0;
    s->mark = (uint32_t)(number + 1);
    return (int32_t)number;
}

static inline void open_window(tm_table *t, int64_t slot, tm_slot *s, int64_t batch, int64_t footprint,
                               int64_t fill) {
    s->opened = (int32_t)batch;
    s->footprint = (int32_t)footprint;
    s->fill = (int32_t)fill;
    t->header->open_windows++;
    if (footprint == NO_BATCH) list_push_oldest(t, slot, s); else list_push_newest(t, slot, s);
}

static inline void close_window(tm_table *t, tm_slot *s) {
    list_unlink(t, s);
    s->mark = 0;
    s->opened = VACANT;
    s->fill = 0;
    t->header->open_windows--;
}

int table_room(const tm_table *t, const tm_keys *keys, int64_t row, int adds_index_entry);
tm_slot *table_new_slot(tm_table *t, uint64_t hash, const tm_keys *keys, int64_t row, int64_t start, int64_t *slot);
void table_free_slot(tm_table *t, int64_t slot);
int starts_room(const tm_table *t);
void starts_push(tm_table *t, int64_t start, int64_t slot, tm_slot *s);

#endif
