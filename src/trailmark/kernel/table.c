/* The table of open windows: slots found by hash, ordered by the age of their footprints. */
#include "table.h"

enum { AHEAD = 16 };

/* What is missing to open a window for this row; 0 if nothing. */
int table_room(const tm_table *t, const tm_keys *keys, int64_t row, int adds_index_entry) {
    const tm_header *h = t->header;
    int need = 0;
    if (!h->free_head && h->slot_top >= h->slot_capacity) need |= NEED_SLOTS;
    if (adds_index_entry && (h->indexed + 1) * 2 > h->index_mask + 1) need |= NEED_INDEX;
    if (h->has_blob && !heap_has_room(t, keys->blob_lengths[row])) need |= NEED_HEAP;
    return need;
}

/* Takes a free slot and writes the key into it. The caller sets the times and links it. */
tm_slot *table_new_slot(tm_table *t, uint64_t hash, const tm_keys *keys, int64_t row, int64_t start,
                        int64_t *slot) {
    tm_header *h = t->header;
    tm_slot *s;
    if (h->free_head) {
        *slot = h->free_head;
        s = slot_at(t, *slot);
        h->free_head = s->chain;
        if (h->free_head) prefetch_slot(t, h->free_head);
    } else {
        *slot = ++h->slot_top;
        s = slot_at(t, *slot);
    }
    s->hash = (uint32_t)hash;
    s->fill = 0;
    s->mark = 0;
    s->chain = NO_SLOT;
    copy_words(slot_key(t, s), keys->records + row * keys->record_bytes, keys->record_bytes);
    if (h->has_start) *key_start(t, s) = start;
    if (h->has_blob) {
        tm_blob *blob = key_blob(t, s);
        blob->length = (uint64_t)keys->blob_lengths[row];
        blob->offset = heap_put(t, keys->blobs + keys->blob_offsets[row], keys->blob_lengths[row]);
    }
    return s;
}

static void index_remove(tm_table *t, const tm_slot *s, int64_t slot) {
    uint64_t mask = (uint64_t)t->header->index_mask, hole = s->hash & mask, entry;
    while ((entry = t->index[hole]) != 0 && (int64_t)(entry >> 32) != slot) hole = (hole + 1) & mask;
    if (!entry) return;                         /* an older window of its key: never indexed itself */
    for (uint64_t next = (hole + 1) & mask; (entry = t->index[next]) != 0; next = (next + 1) & mask) {
        uint64_t home = (uint32_t)entry & mask;
        if (((next - home) & mask) >= ((next - hole) & mask)) {
            t->index[hole] = entry;
            hole = next;
        }
    }
    t->index[hole] = 0;
    t->header->indexed--;
}

/* Gives back a slot that is in no list any more. */
void table_free_slot(tm_table *t, int64_t slot) {
    tm_slot *s = slot_at(t, slot);
    index_remove(t, s, slot);
    if (t->header->has_blob) heap_free_block(t, key_blob(t, s)->offset, (int64_t)key_blob(t, s)->length);
    s->opened = FREED;
    s->chain = (uint32_t)t->header->free_head;
    t->header->free_head = slot;
}

/* Gives back the slots of the windows that closed in this batch and were not opened again. */
void tm_release_closed(tm_table *t, tm_local *local) {
    for (int64_t w = 0; w < local->count; w++) {
        if (w + 2 * AHEAD < local->count && local->is_closed[w + 2 * AHEAD])
            prefetch_slot(t, local->slot[w + 2 * AHEAD]);
        if (w + AHEAD < local->count && local->is_closed[w + AHEAD])
            prefetch_index(t, slot_at(t, local->slot[w + AHEAD])->hash);
        if (!local->is_closed[w]) continue;
        if (slot_at(t, local->slot[w])->opened == VACANT) table_free_slot(t, local->slot[w]);
    }
}

void tm_reindex(const uint64_t *from, int64_t from_mask, uint64_t *to, int64_t to_mask) {
    for (int64_t i = 0; i <= from_mask; i++) {
        uint64_t entry = from[i];
        if (!entry) continue;
        int64_t at = (int64_t)((uint32_t)entry & (uint64_t)to_mask);
        while (to[at]) at = (at + 1) & to_mask;
        to[at] = entry;
    }
}

/* Windows of one start are chained, so that a watermark finds them without looking at the others. */

static int64_t starts_find(const tm_start *starts, int64_t mask, int64_t start) {
    int64_t at = (int64_t)(finish64((uint64_t)start) & (uint64_t)mask);
    while (starts[at].head && starts[at].start != start) at = (at + 1) & mask;
    return at;
}

int starts_room(const tm_table *t) {
    return (t->header->starts_used + 1) * 2 <= t->header->starts_mask + 1;
}

void starts_push(tm_table *t, int64_t start, int64_t slot, tm_slot *s) {
    tm_start *entry = &t->starts[starts_find(t->starts, t->header->starts_mask, start)];
    if (!entry->head) {
        entry->start = start;
        t->header->starts_used++;
    }
    s->chain = (uint32_t)entry->head;
    entry->head = slot;
}

void tm_restart(const tm_start *from, int64_t from_mask, tm_start *to, int64_t to_mask) {
    for (int64_t i = 0; i <= from_mask; i++)
        if (from[i].head) to[starts_find(to, to_mask, from[i].start)] = from[i];
}

/* Starts of the windows that end at or before the watermark; returns how many (at most capacity). */
int64_t tm_due_starts(const tm_table *t, int64_t size, int64_t watermark, int64_t *due, int64_t capacity) {
    int64_t count = 0;
    for (int64_t i = 0; i <= t->header->starts_mask && count < capacity; i++)
        if (t->starts[i].head && t->starts[i].start + size <= watermark) due[count++] = t->starts[i].start;
    return count;
}

static void starts_remove(tm_table *t, int64_t hole) {
    int64_t mask = t->header->starts_mask;
    for (int64_t next = (hole + 1) & mask; t->starts[next].head; next = (next + 1) & mask) {
        int64_t home = (int64_t)(finish64((uint64_t)t->starts[next].start) & (uint64_t)mask);
        if (((next - home) & mask) >= ((next - hole) & mask)) {
            t->starts[hole] = t->starts[next];
            hole = next;
        }
    }
    t->starts[hole].head = NO_SLOT;
    t->header->starts_used--;
}

/* Closes all windows of the given starts; returns how many starts are done, fewer if `local` is full. */
int64_t tm_close_starts(tm_table *t, const int64_t *starts, int64_t count, tm_local *local) {
    for (int64_t i = 0; i < count; i++) {
        int64_t at = starts_find(t->starts, t->header->starts_mask, starts[i]);
        for (int64_t slot = t->starts[at].head; slot; ) {
            tm_slot *s = slot_at(t, slot);
            int64_t next = s->chain;
            if (!s->mark && local->count >= local->capacity) return i;
            local->is_closed[local_number(s, slot, 1, local)] = 1;
            list_unlink(t, s);
            s->mark = 0;
            s->opened = VACANT;
            t->header->open_windows--;
            t->starts[at].head = slot = next;
        }
        starts_remove(t, at);
    }
    return count;
}

/* Moves up to `most` windows whose footprint is older than `before` to the new end of the order. */
int64_t tm_take_oldest(tm_table *t, int64_t before, int64_t batch, int64_t most, int64_t *slots) {
    int64_t count = 0;
    while (count < most && t->header->oldest) {
        int64_t slot = t->header->oldest;
        tm_slot *s = slot_at(t, slot);
        if (s->footprint >= before) break;
        list_unlink(t, s);
        s->footprint = (int32_t)batch;
        list_push_newest(t, slot, s);
        slots[count++] = slot;
    }
    return count;
}

/* Open windows from the oldest footprint on: those whose footprint is older than `before` and that opened
 * before `opened_before`. */
int64_t tm_list_oldest(const tm_table *t, int64_t before, int64_t opened_before, int64_t most, int64_t *slots) {
    int64_t count = 0;
    for (int64_t slot = t->header->oldest; slot && count < most; ) {
        const tm_slot *s = slot_at(t, slot);
        if (s->footprint >= before) break;
        if (s->opened < opened_before) slots[count++] = slot;
        slot = s->newer;
    }
    return count;
}

/* Gives windows a new footprint, which makes them the newest in this order. */
void tm_check(tm_table *t, const int64_t *slots, int64_t count, int64_t batch) {
    for (int64_t i = 0; i < count; i++) {
        if (i + AHEAD < count) prefetch_slot(t, slots[i + AHEAD]);
        tm_slot *s = slot_at(t, slots[i]);
        list_unlink(t, s);
        s->footprint = (int32_t)batch;
        list_push_newest(t, slots[i], s);
    }
}

void tm_forget_footprints(tm_table *t) {
    for (int64_t slot = t->header->oldest; slot; slot = slot_at(t, slot)->newer)
        slot_at(t, slot)->footprint = NO_BATCH;
}

int64_t tm_oldest_footprint(const tm_table *t) {
    return t->header->oldest ? slot_at(t, t->header->oldest)->footprint : VACANT;
}

/* A whole number of 4 bytes, or the lower 8 of a longer one. */
static inline int64_t number_at(const tm_slot *s, tm_place place) {
    int32_t four;
    int64_t value;
    if (place.width == 4) {
        memcpy(&four, (const uint8_t *)s + place.at, 4);
        return four;
    }
    memcpy(&value, (const uint8_t *)s + place.at, 8);
    return value;
}

/* Bits that tell how wide the numbers of some slots are: those that differ from their sign. Of 16 bytes,
 * the upper 8 count in `cut`: they are not 0 where a number needs more than 64 bits. */
static inline uint64_t number_bits(tm_slot *const *slots, int64_t count, tm_place place, uint64_t *cut) {
    uint64_t bits = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t value = number_at(slots[i], place), sign = value >> 63, upper;
        bits |= (uint64_t)(value ^ sign);
        if (place.width == 16) {
            memcpy(&upper, (const uint8_t *)slots[i] + place.at + 8, 8);
            *cut |= (uint64_t)(upper ^ sign);
        }
    }
    return bits;
}

static inline uint8_t bytes_for(uint64_t bits) {
    if (!(bits >> 7)) return 1;
    if (!(bits >> 15)) return 2;
    return bits >> 31 ? 8 : 4;
}

#define PUT(type)                                                                                       \
    for (int64_t i = 0; i < count; i++) {                                                               \
        type narrow = (type)number_at(slots[i], place);                                                 \
        memcpy(to + sizeof(type) * i, &narrow, sizeof(type));                                           \
    }                                                                                                   \
    break;

static inline void put_numbers(tm_slot *const *slots, int64_t count, tm_place place, uint8_t *to, int bytes) {
    switch (bytes) {
    case 1: PUT(int8_t)
    case 2: PUT(int16_t)
    case 4: PUT(int32_t)
    case 8: PUT(int64_t)
    }
}

/* Each width becomes a loop of its own. */
#define FOR_WIDTH(place, call)                                                                          \
    switch ((place).width) {                                                                            \
    case 4: (place).width = 4; call; break;                                                             \
    case 8: (place).width = 8; call; break;                                                             \
    default: (place).width = 16; call;                                                                  \
    }

enum { BLOCK = 64 };                            /* slots that stay in the cache from field to field */

static inline int64_t next_block(const tm_table *t, const int64_t *slots, int64_t count, int64_t from,
                                 tm_slot **block) {
    int64_t some = count - from < BLOCK ? count - from : BLOCK;
    for (int64_t i = from + BLOCK; i < count && i < from + 2 * BLOCK; i++) prefetch_slot(t, slots[i]);
    for (int64_t i = 0; i < some; i++) block[i] = slot_at(t, slots[from + i]);
    return some;
}

/* Copies of slots, field by field; what is NULL is not wanted. */
void tm_read_slots(const tm_table *t, const int64_t *slots, int64_t count, uint8_t *keys, int64_t *starts,
                   uint8_t *states) {
    int64_t key_bytes = t->header->key_bytes, state_bytes = t->header->state_bytes;
    tm_slot *block[BLOCK];
    for (int64_t from = 0; from < count; from += BLOCK) {
        int64_t some = next_block(t, slots, count, from, block);
        for (int64_t i = 0; i < some; i++) {
            copy_words(keys + (from + i) * key_bytes, slot_key(t, block[i]), key_bytes);
            if (starts) starts[from + i] = *key_start(t, block[i]);
            if (states) copy_words(states + (from + i) * state_bytes, slot_state(t, block[i]), state_bytes);
        }
    }
}

/* Columns of whole numbers of slots, each as narrow as its numbers are: `bytes` says how narrow, 0 that
 * some need more than 64 bits. A column begins where it would if the others were 8 bytes wide. `bits` are
 * two zeros for each column. */
void tm_read_numbers(const tm_table *t, const int64_t *slots, int64_t count, const tm_place *places,
                     int64_t columns, uint64_t *bits, uint8_t *to, uint8_t *bytes) {
    uint64_t *cut = bits + columns;
    tm_slot *block[BLOCK];
    for (int64_t from = 0; from < count; from += BLOCK) {
        int64_t some = next_block(t, slots, count, from, block);
        for (int64_t c = 0; c < columns; c++) {
            tm_place place = places[c];
            FOR_WIDTH(place, bits[c] |= number_bits(block, some, place, &cut[c]))
        }
    }
    for (int64_t c = 0; c < columns; c++) bytes[c] = cut[c] ? 0 : bytes_for(bits[c]);
    for (int64_t from = 0; from < count; from += BLOCK) {
        int64_t some = next_block(t, slots, count, from, block);
        for (int64_t c = 0; c < columns; c++) {
            tm_place place = places[c];
            uint8_t *here = to + 8 * c * count + bytes[c] * from;
            FOR_WIDTH(place, put_numbers(block, some, place, here, bytes[c]))
        }
    }
}

void tm_pick_rows(const uint8_t *from, int64_t bytes, const int64_t *which, int64_t count, uint8_t *to) {
    for (int64_t i = 0; i < count; i++) copy_words(to + i * bytes, from + which[i] * bytes, bytes);
}

/* States of the windows of this batch: from the table, or a fresh one. */
void tm_load_states(const tm_table *t, const tm_local *local, int64_t from, const uint8_t *fresh, uint8_t *states) {
    int64_t bytes = t->header->state_bytes;
    for (int64_t w = from; w < local->count; w++) {
        if (w + AHEAD < local->count) prefetch_slot(t, local->slot[w + AHEAD]);
        const uint8_t *source = local->is_prior[w] ? slot_state(t, slot_at(t, local->slot[w])) : fresh;
        copy_words(states + w * bytes, source, bytes);
    }
}

/* Numbers of the windows that closed; returns how many. */
int64_t tm_list_closed(const tm_local *local, int64_t *closed) {
    int64_t count = 0;
    for (int64_t w = 0; w < local->count; w++) {
        closed[count] = w;
        count += local->is_closed[w];
    }
    return count;
}

/* Writes the states of the windows that stay open back, and ends the batch's numbering. Lists the slots
 * of those that opened in this batch; returns how many. */
int64_t tm_store_states(tm_table *t, const tm_local *local, const uint8_t *states, int64_t *opened) {
    int64_t bytes = t->header->state_bytes, count = 0;
    for (int64_t w = 0; w < local->count; w++) {
        if (w + AHEAD < local->count) prefetch_slot(t, local->slot[w + AHEAD]);
        if (local->is_closed[w]) continue;
        tm_slot *s = slot_at(t, local->slot[w]);
        s->mark = 0;
        copy_words(slot_state(t, s), states + w * bytes, bytes);
        opened[count] = local->slot[w];
        count += !local->is_prior[w];
    }
    return count;
}

/* Bytes of the keys with strings of these slots, one after another; call first with to = NULL. */
int64_t tm_gather_blobs(const tm_table *t, const int64_t *slots, int64_t count, int64_t *offsets, uint8_t *to) {
    int64_t total = 0;
    for (int64_t i = 0; i < count; i++) {
        const tm_blob *blob = key_blob(t, slot_at(t, slots[i]));
        if (to) memcpy(to + total, t->heap + blob->offset, blob->length);
        if (offsets) offsets[i] = total;
        total += (int64_t)blob->length;
    }
    return total;
}

/* A set of identities: is_new[row] tells whether the row's identity was not in it, and puts it there.
 * Stops before a row there is no room for and returns its number. */
int64_t tm_decide(tm_table *t, const tm_keys *keys, const int64_t *starts, int64_t from, uint8_t *is_new,
                  int32_t *need) {
    *need = 0;
    for (int64_t row = from; row < keys->count; row++) {
        int64_t start = starts ? starts[row] : 0, slot;
        uint64_t hash = keys->hashes[row];
        if (starts) hash = finish64(absorb64(hash, (uint64_t)start));
        int64_t at = index_find(t, hash, keys, row, starts != NULL, start, &slot);
        is_new[row] = slot == NO_SLOT;
        if (slot) continue;
        if ((*need = table_room(t, keys, row, 1))) return row;
        table_new_slot(t, hash, keys, row, start, &slot);
        index_set(t, at, hash, slot);
        t->header->indexed++;
    }
    return keys->count;
}
