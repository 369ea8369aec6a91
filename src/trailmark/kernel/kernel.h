/* The compiled part of Trailmark: plain C behind ctypes, no Python API, no allocation, no files.
 *
 * Memory belongs to the caller. Functions that may run out of room stop before the tuple that needs
 * it, say how far they came and what was short, and are called again after the caller has grown it.
 */
#ifndef TRAILMARK_KERNEL_H
#define TRAILMARK_KERNEL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Table fields are only 8-byte aligned. */
typedef __int128 i128 __attribute__((aligned(8)));

enum { NO_SLOT = 0, NO_BATCH = -1, VACANT = -2 };
enum { HEAP_CLASSES = 96 };

/* What a call ran out of; several may be set. */
enum { NEED_SLOTS = 1, NEED_INDEX = 2, NEED_HEAP = 4, NEED_STARTS = 8, NEED_PAIRS = 16, NEED_WINDOWS = 32 };

/* First page of a table's files. Slots are named by number + 1, so that 0 means none. */
typedef struct {
    uint64_t seed;
    int64_t stride, key_offset, key_bytes, state_offset, state_bytes;
    int64_t has_start, has_blob;       /* the key record ends with an int64 start, then {offset, length} */
    int64_t slot_capacity, slot_top, free_head;
    int64_t index_mask, open_windows, indexed;
    int64_t oldest, newest;            /* ends of the list of open windows ordered by footprint */
    int64_t heap_capacity, heap_top;
    int64_t starts_mask, starts_used;
    int64_t heap_free[HEAP_CLASSES];
} tm_header;

/* Precedes key and state in every slot; kept small, so that a usual slot is one cache line. */
typedef struct {
    uint32_t hash;                     /* the half of the hash that the index has too */
    int32_t fill;                      /* tuples taken; negative: tuples still to skip */
    uint32_t older, newer;             /* neighbours in footprint order */
    int32_t opened, footprint;         /* batches */
    uint32_t mark;                     /* number + 1 among the windows of the running batch, else 0 */
    uint32_t chain;                    /* next window of the same key (count) or start (time), or next free */
} tm_slot;

typedef struct { uint64_t offset; uint64_t length; } tm_blob;
typedef struct { int64_t start; int64_t head; } tm_start;      /* head 0: empty entry */

typedef struct {
    tm_header *header;
    uint64_t *index;                   /* low half: hash tag, high half: slot; 0: empty */
    uint8_t *slots;
    uint8_t *heap;
    tm_start *starts;
} tm_table;

/* The keys of a batch: fixed-width records, their hashes, and for string keys their bytes. */
typedef struct {
    const uint8_t *records;
    const uint64_t *hashes;
    const int64_t *blob_offsets;
    const int32_t *blob_lengths;
    const uint8_t *blobs;
    int64_t count, record_bytes;
} tm_keys;

/* A whole number of a slot: where it begins, and its 4, 8 or 16 bytes. */
typedef struct { int32_t at, width; } tm_place;

/* Windows met in the running batch, numbered in the order they are met. */
typedef struct {
    int64_t *slot;
    uint8_t *is_prior, *is_closed;
    int64_t capacity, count;
} tm_local;

/* Which tuple goes into which of them. */
typedef struct {
    int32_t *row, *window;
    int64_t capacity, count;
} tm_pairs;

/* GCC takes a function that only prefetches for one without effect and drops calls of it, unless it is
 * inlined before that is looked at. */
#define PREFETCHING static inline __attribute__((always_inline)) void

static inline uint64_t finish64(uint64_t h) {
    h ^= h >> 33; h *= 0xFF51AFD7ED558CCDull;
    h ^= h >> 33; h *= 0xC4CEB9FE1A85EC53ull;
    return h ^ (h >> 33);
}

static inline uint64_t absorb64(uint64_t h, uint64_t word) {
    h = (h ^ word) * 0x9E3779B97F4A7C15ull;
    return h ^ (h >> 29);
}

static inline uint64_t absorb_bytes(uint64_t h, const uint8_t *bytes, int64_t length) {
    uint64_t word;
    for (; length >= 8; bytes += 8, length -= 8) {
        memcpy(&word, bytes, 8);
        h = absorb64(h, word);
    }
    if (length > 0) {
        word = 0;
        memcpy(&word, bytes, (size_t)length);
        h = absorb64(h, word);
    }
    return h;
}

/* Keys and states are whole words and short: a call to memcpy costs more than the copy. */
static inline void copy_words(uint8_t *to, const uint8_t *from, int64_t bytes) {
    for (int64_t at = 0; at < bytes; at += 8) {
        uint64_t word;
        memcpy(&word, from + at, 8);
        memcpy(to + at, &word, 8);
    }
}

static inline int is_valid(const uint8_t *bitmap, int64_t bit) {
    return bitmap == NULL || (bitmap[bit >> 3] >> (bit & 7)) & 1;
}

static inline tm_slot *slot_at(const tm_table *t, int64_t slot) {
    return (tm_slot *)(t->slots + (slot - 1) * t->header->stride);
}

static inline uint8_t *slot_key(const tm_table *t, tm_slot *s) {
    return (uint8_t *)s + t->header->key_offset;
}

static inline uint8_t *slot_state(const tm_table *t, tm_slot *s) {
    return (uint8_t *)s + t->header->state_offset;
}

static inline int64_t *key_start(const tm_table *t, tm_slot *s) {
    return (int64_t *)(slot_key(t, s) + t->header->key_bytes);
}

static inline tm_blob *key_blob(const tm_table *t, tm_slot *s) {
    return (tm_blob *)(slot_key(t, s) + t->header->key_bytes + 8 * t->header->has_start);
}

/* heap.c */
int64_t heap_block_bytes(int64_t length);
int heap_has_room(const tm_table *t, int64_t length);
uint64_t heap_take(tm_table *t, int64_t length);
uint64_t heap_put(tm_table *t, const uint8_t *bytes, int64_t length);
void heap_free_block(tm_table *t, uint64_t offset, int64_t length);

#endif
