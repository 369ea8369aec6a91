/* Bytes of variable length that slots refer to: keys with strings, and string-valued states.
 *
 * Blocks come in classes (multiples of 16 up to 512, then two sizes per power of two); a freed block
 * heads the list of its class and is the first to be used again.
 */
#include "kernel.h"

static int64_t block_class(int64_t length, int64_t *bytes) {
    if (length <= 512) {
        int64_t units = length <= 16 ? 1 : (length + 15) / 16;
        *bytes = units * 16;
        return units - 1;                       /* 0..31 */
    }
    int64_t size = 512, number = 31;
    while (size < length) {
        int64_t middle = size + size / 2;
        number++;
        if (length <= middle) { size = middle; break; }
        number++;
        size *= 2;
    }
    *bytes = size;
    return number;                              /* up to 93: 2^40 bytes */
}

int64_t heap_block_bytes(int64_t length) {
    int64_t bytes;
    block_class(length, &bytes);
    return bytes;
}

int heap_has_room(const tm_table *t, int64_t length) {
    int64_t bytes, number = block_class(length, &bytes);
    return t->header->heap_free[number] != 0 || t->header->heap_top + bytes <= t->header->heap_capacity;
}

uint64_t heap_take(tm_table *t, int64_t length) {
    int64_t bytes, number = block_class(length, &bytes);
    tm_header *h = t->header;
    uint64_t offset;
    if (h->heap_free[number]) {
        offset = (uint64_t)h->heap_free[number] - 1;
        memcpy(&h->heap_free[number], t->heap + offset, 8);
    } else {
        offset = (uint64_t)h->heap_top;
        h->heap_top += bytes;
    }
    return offset;
}

uint64_t heap_put(tm_table *t, const uint8_t *data, int64_t length) {
    uint64_t offset = heap_take(t, length);
    memcpy(t->heap + offset, data, (size_t)length);
    return offset;
}

void heap_free_block(tm_table *t, uint64_t offset, int64_t length) {
    int64_t bytes, number = block_class(length, &bytes);
    memcpy(t->heap + offset, &t->header->heap_free[number], 8);
    t->header->heap_free[number] = (int64_t)offset + 1;
}
