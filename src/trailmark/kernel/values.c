/* Values of variable length in states: texts and lists, in blocks of the heap.
 *
 * A block has two parts. Of a list the first holds `width` bytes for each element, its values or, of texts,
 * their lengths, and the second what is left: which elements are valid, or the bytes of the texts. A text by
 * itself has only the second part.
 */
#include "kernel.h"

/* In the state; `count` is that of a list's elements, or 1 of a text that is not null. */
typedef struct { uint64_t offset; int64_t length, count; } tm_value;

static inline tm_value *value_at(uint8_t *states, int64_t stride, int64_t i) {
    return (tm_value *)(states + i * stride);
}

/* All first parts one after another, and all second ones. `states` points at the value in the first state. */
void tm_read_values(const uint8_t *heap, uint8_t *states, int64_t stride, int64_t count, int64_t width,
                    uint8_t *first, uint8_t *second) {
    for (int64_t i = 0; i < count; i++) {
        const tm_value *value = value_at(states, stride, i);
        if (!value->length) continue;
        int64_t head = value->count * width;
        memcpy(first, heap + value->offset, (size_t)head);
        memcpy(second, heap + value->offset + head, (size_t)(value->length - head));
        first += head;
        second += value->length - head;
    }
}

/* Room in the heap that values of these lengths need, whatever the free lists hold. */
int64_t tm_values_need(const int64_t *lengths, int64_t count) {
    int64_t total = 0;
    for (int64_t i = 0; i < count; i++) total += lengths[i] ? heap_block_bytes(lengths[i]) : 0;
    return total;
}

static void give_back(tm_table *t, tm_value *value) {
    if (value->length) heap_free_block(t, value->offset, value->length);
    value->offset = 0;
    value->length = value->count = 0;
}

/* Puts values in the place of those that the states have; there is room for all of them. */
void tm_write_values(tm_table *t, uint8_t *states, int64_t stride, int64_t count, int64_t width,
                     const int64_t *counts, const int64_t *lengths, const uint8_t *first, const uint8_t *second) {
    for (int64_t i = 0; i < count; i++) {
        tm_value *value = value_at(states, stride, i);
        int64_t length = lengths[i], head = counts[i] * width;
        if (!value->length || !length || heap_block_bytes(value->length) != heap_block_bytes(length)) {
            give_back(t, value);
            if (length) value->offset = heap_take(t, length);
        }
        value->length = length;
        value->count = counts[i];
        if (!length) continue;
        memcpy(t->heap + value->offset, first, (size_t)head);
        memcpy(t->heap + value->offset + head, second, (size_t)(length - head));
        first += head;
        second += length - head;
    }
}

void tm_free_values(tm_table *t, uint8_t *states, int64_t stride, int64_t count) {
    for (int64_t i = 0; i < count; i++) give_back(t, value_at(states, stride, i));
}
