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

/* Gives back the slots of the windows that closed in this batch and were not opened again. */
void tm_release_closed(tm_table *t, tm_local *local) {
    for (int64_t w = 0; w < local->count; w++) {
        if (w + 2 * AHEAD < local->count && local->is_closed[w + 2 * AHEAD])
            prefetch_slot(t, local->slot[w + 2 * AHEAD]);
        if (w + AHEAD < local->count && local->is_closed[w + AHEAD])
            prefetch_index(t, slot_at(t, local->slot[w + AHEAD])->hash);
        if (!local->is_closed[w]) continue;
        int64_t slot = local->slot[w];
        tm_slot *s = slot_at(t, slot);
        if (s->opened != VACANT) continue;
        index_remove(t, s, slot);
        if (t->header->has_blob) heap_free_block(t, key_blob(t, s)->offset, (int64_t)key_blob(t, s)->length);
        s->opened = FREED;
        s->chain = (uint32_t)t->header->free_head;
        t->header->free_head = slot;
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

/* One column of whole numbers of slots, and the least and greatest so far; 1 if one needs over 64 bits. */
static inline int64_t read_column(tm_slot *const *slots, int64_t count, int64_t at, int width, int64_t *to,
                                  int64_t *ends) {
    int64_t least = ends[0], greatest = ends[1], cut = 0;
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *bytes = (const uint8_t *)slots[i] + at;
        int32_t four;
        int64_t value, high;
        if (width == 4) { memcpy(&four, bytes, 4); value = four; }
        else memcpy(&value, bytes, 8);
        if (width == 16) {
            memcpy(&high, bytes + 8, 8);
            cut |= high ^ (value >> 63);
        }
        to[i] = value;
        least = value < least ? value : least;
        greatest = value > greatest ? value : greatest;
    }
    ends[0] = least;
    ends[1] = greatest;
    return cut != 0;
}

/* Copies of slots, field by field; what is NULL is not wanted. Whole numbers come as one column of 64 bits
 * after another, with the least and greatest of each column. Returns a bit for every column in which some
 * number needs more than 64. */
int64_t tm_read_slots(const tm_table *t, const int64_t *slots, int64_t count, uint8_t *keys, int64_t *starts,
                      uint8_t *states, const tm_place *places, int64_t columns, int64_t *numbers, int64_t *ends) {
    enum { BLOCK = 64 };                        /* slots that stay in the cache from field to field */
    int64_t key_bytes = t->header->key_bytes, state_bytes = t->header->state_bytes, cut = 0;
    tm_slot *block[BLOCK];
    for (int64_t c = 0; c < columns; c++) {
        ends[2 * c] = INT64_MAX;
        ends[2 * c + 1] = INT64_MIN;
    }
    for (int64_t from = 0; from < count; from += BLOCK) {
        int64_t some = count - from < BLOCK ? count - from : BLOCK;
        for (int64_t i = from + BLOCK; i < count && i < from + 2 * BLOCK; i++) prefetch_slot(t, slots[i]);
        for (int64_t i = 0; i < some; i++) block[i] = slot_at(t, slots[from + i]);
        for (int64_t i = 0; keys && i < some; i++)
            copy_words(keys + (from + i) * key_bytes, slot_key(t, block[i]), key_bytes);
        for (int64_t i = 0; starts && i < some; i++) starts[from + i] = *key_start(t, block[i]);
        for (int64_t i = 0; states && i < some; i++)
            copy_words(states + (from + i) * state_bytes, slot_state(t, block[i]), state_bytes);
        for (int64_t c = 0; c < columns; c++) {
            int64_t at = places[c].at, *column = numbers + c * count + from, *range = ends + 2 * c;
            int64_t found = 0;
            switch (places[c].width) {          /* each becomes a loop of its own */
                case 4: found = read_column(block, some, at, 4, column, range); break;
                case 8: found = read_column(block, some, at, 8, column, range); break;
                default: found = read_column(block, some, at, 16, column, range);
            }
            cut |= found << c;
        }
    }
    return cut;
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
