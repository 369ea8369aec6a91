/* Rows of a batch: keys as fixed-width records, their hashes, and the fingerprint of all columns. */
#include "kernel.h"

#define ENCODE(bytes)                                                                                   \
    for (int64_t i = 0; i < count; i++) {                                                               \
        if (is_valid(validity, first + i)) memcpy(records + i * stride + at, source + bytes * i, bytes); \
        else records[i * stride + null_at] |= null;                                                     \
    }                                                                                                   \
    break;

/* Writes one column of the key into the records; a null leaves zeros and sets its bit.
 * width 0: booleans, one bit each, starting at `first` of the source. */
void tm_encode_column(uint8_t *records, int64_t stride, int64_t at, int64_t null_at, int32_t null_bit,
                      const uint8_t *source, int64_t width, const uint8_t *validity, int64_t first,
                      int64_t count) {
    uint8_t null = (uint8_t)(1u << null_bit);
    switch (width) {
    case 0:
        for (int64_t i = 0; i < count; i++) {
            if (is_valid(validity, first + i)) records[i * stride + at] = (uint8_t)is_valid(source, first + i);
            else records[i * stride + null_at] |= null;
        }
        break;
    case 1: ENCODE(1)
    case 2: ENCODE(2)
    case 4: ENCODE(4)
    case 8: ENCODE(8)
    case 16: ENCODE(16)
    }
}

#define DECODE(bytes)                                                                                   \
    for (int64_t i = 0; i < count; i++) memcpy(to + bytes * i, records + i * stride + at, bytes);       \
    break;

/* One column of the key out of the records, side by side, and which are valid; returns how many are null. */
int64_t tm_decode_column(const uint8_t *records, int64_t stride, int64_t at, int64_t width, int64_t null_at,
                         int32_t null_bit, int64_t count, uint8_t *to, uint8_t *valid) {
    int64_t nulls = 0;
    for (int64_t i = 0; i < count; i++) {
        valid[i] = !((records[i * stride + null_at] >> null_bit) & 1);
        nulls += !valid[i];
    }
    switch (width) {
    case 1: DECODE(1)
    case 2: DECODE(2)
    case 4: DECODE(4)
    case 8: DECODE(8)
    case 16: DECODE(16)
    }
    return nulls;
}

/* Writes the length of each string into the records and adds it to the blob lengths. */
void tm_encode_lengths(uint8_t *records, int64_t stride, int64_t at, int64_t null_at, int32_t null_bit,
                       const int32_t *offsets, const uint8_t *validity, int64_t first, int64_t count,
                       int32_t *blob_lengths) {
    for (int64_t i = 0; i < count; i++) {
        uint8_t *record = records + i * stride;
        if (!is_valid(validity, first + i)) {
            record[null_at] |= (uint8_t)(1u << null_bit);
            continue;
        }
        uint32_t length = (uint32_t)(offsets[i + 1] - offsets[i]);
        memcpy(record + at, &length, 4);
        blob_lengths[i] += (int32_t)length;
    }
}

/* Copies one string column of the key to its place in the joined blobs; `cursor` moves along. */
void tm_join_strings(const uint8_t *records, int64_t stride, int64_t at, const int32_t *offsets,
                     const uint8_t *data, int64_t count, int64_t *cursor, uint8_t *blobs) {
    for (int64_t i = 0; i < count; i++) {
        uint32_t length;
        memcpy(&length, records + i * stride + at, 4);
        memcpy(blobs + cursor[i], data + offsets[i], length);
        cursor[i] += length;
    }
}

void tm_hash_keys(uint64_t seed, const tm_keys *keys, uint64_t *hashes) {
    int64_t words = keys->record_bytes / 8;
    for (int64_t i = 0; i < keys->count; i++) {
        uint64_t h = seed;
        const uint8_t *record = keys->records + i * keys->record_bytes;
        for (int64_t w = 0; w < words; w++) {
            uint64_t word;
            memcpy(&word, record + 8 * w, 8);
            h = absorb64(h, word);
        }
        if (keys->blobs) h = absorb_bytes(h, keys->blobs + keys->blob_offsets[i], keys->blob_lengths[i]);
        hashes[i] = finish64(h);
    }
}

static const uint64_t NULL_WORD = 0xA5A5A5A55A5A5A5Aull;

/* Adds one column of fixed width to the digests of the rows (0: booleans, else 1, 2, 4, 8, 16). */
void tm_digest_fixed(uint64_t *digests, const uint8_t *source, int64_t width, const uint8_t *validity,
                     int64_t first, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        uint64_t word = 0;
        if (!is_valid(validity, first + i)) {
            digests[i] = absorb64(~digests[i], NULL_WORD);
            continue;
        }
        if (width == 0) word = (uint64_t)is_valid(source, first + i);
        else if (width == 4) { uint32_t half; memcpy(&half, source + 4 * i, 4); word = half; }
        else if (width == 8) memcpy(&word, source + 8 * i, 8);
        else if (width < 8) memcpy(&word, source + width * i, (size_t)width);
        else { digests[i] = absorb_bytes(digests[i], source + width * i, width); continue; }
        digests[i] = absorb64(digests[i], word);
    }
}

void tm_digest_strings(uint64_t *digests, const int32_t *offsets, const uint8_t *data,
                       const uint8_t *validity, int64_t first, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        if (!is_valid(validity, first + i)) {
            digests[i] = absorb64(~digests[i], NULL_WORD);
            continue;
        }
        int64_t length = offsets[i + 1] - offsets[i];
        digests[i] = absorb_bytes(absorb64(digests[i], (uint64_t)length), data + offsets[i], length);
    }
}

/* Adds one column of lists to the digests of the rows, given the digests of all elements: in their order,
 * or, of maps, in any. */
void tm_digest_lists(uint64_t *digests, const int64_t *offsets, const uint64_t *elements,
                     const uint8_t *validity, int64_t first, int64_t count, int32_t is_ordered) {
    for (int64_t i = 0; i < count; i++) {
        if (!is_valid(validity, first + i)) {
            digests[i] = absorb64(~digests[i], NULL_WORD);
            continue;
        }
        uint64_t h = absorb64(digests[i], (uint64_t)(offsets[i + 1] - offsets[i]));
        uint64_t sum = 0;
        for (int64_t at = offsets[i]; at < offsets[i + 1]; at++) {
            if (is_ordered) h = absorb64(h, elements[at]);
            else sum += finish64(elements[at]);
        }
        digests[i] = is_ordered ? h : absorb64(h, sum);
    }
}

/* Sum of the finished row digests: the order of the rows does not matter. */
uint64_t tm_digest_sum(const uint64_t *digests, int64_t count) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < count; i++) sum += finish64(digests[i]);
    return sum;
}

void tm_copy_slices(const uint8_t *from, const int64_t *starts, const int32_t *lengths, int64_t count, uint8_t *to) {
    for (int64_t i = 0; i < count; to += lengths[i], i++)
        memcpy(to, from + starts[i], (size_t)lengths[i]);
}
