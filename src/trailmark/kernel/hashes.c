/* Hashes of values, as Spark makes them: XXH64 with Spark's seed, of the bytes that Spark would hash. So
 * what counts by them counts as Spark does. */
#include "kernel.h"

#define SEED 42ull
#define PRIME_1 0x9E3779B185EBCA87ull
#define PRIME_2 0xC2B2AE3D27D4EB4Full
#define PRIME_3 0x165667B19E3779F9ull
#define PRIME_4 0x85EBCA77C2B2AE63ull
#define PRIME_5 0x27D4EB2F165667C5ull
#define WIDE 16

static inline uint64_t rotate(uint64_t x, int bits) { return x << bits | x >> (64 - bits); }
static inline uint64_t read_8(const uint8_t *at) { uint64_t v; memcpy(&v, at, 8); return v; }
static inline uint64_t read_4(const uint8_t *at) { uint32_t v; memcpy(&v, at, 4); return v; }

static inline uint64_t lane(uint64_t sum, uint64_t word) { return rotate(sum + word * PRIME_2, 31) * PRIME_1; }
static inline uint64_t join_lane(uint64_t h, uint64_t sum) { return (h ^ lane(0, sum)) * PRIME_1 + PRIME_4; }

/* What 32 bytes at a time give. */
static uint64_t stripes(const uint8_t *bytes, int64_t length) {
    uint64_t a = SEED + PRIME_1 + PRIME_2, b = SEED + PRIME_2, c = SEED, d = SEED - PRIME_1;
    for (; length >= 32; bytes += 32, length -= 32) {
        a = lane(a, read_8(bytes));
        b = lane(b, read_8(bytes + 8));
        c = lane(c, read_8(bytes + 16));
        d = lane(d, read_8(bytes + 24));
    }
    uint64_t h = rotate(a, 1) + rotate(b, 7) + rotate(c, 12) + rotate(d, 18);
    return join_lane(join_lane(join_lane(join_lane(h, a), b), c), d);
}

static inline uint64_t xxh64(const uint8_t *bytes, int64_t length) {
    uint64_t h = (length >= 32 ? stripes(bytes, length) : SEED + PRIME_5) + (uint64_t)length;
    bytes += length & ~31ll;
    length &= 31;
    for (; length >= 8; bytes += 8, length -= 8) h = rotate(h ^ lane(0, read_8(bytes)), 27) * PRIME_1 + PRIME_4;
    if (length >= 4) {
        h = rotate(h ^ read_4(bytes) * PRIME_1, 23) * PRIME_2 + PRIME_3;
        bytes += 4;
        length -= 4;
    }
    for (; length > 0; bytes++, length--) h = rotate(h ^ *bytes * PRIME_5, 11) * PRIME_1;
    h = (h ^ h >> 33) * PRIME_2;
    h = (h ^ h >> 29) * PRIME_3;
    return h ^ h >> 32;
}

/* Values of 4 or 8 bytes. */
void tm_hash_4(const uint8_t *values, int64_t count, uint64_t *to) {
    for (int64_t i = 0; i < count; i++) to[i] = xxh64(values + 4 * i, 4);
}

void tm_hash_8(const uint8_t *values, int64_t count, uint64_t *to) {
    for (int64_t i = 0; i < count; i++) to[i] = xxh64(values + 8 * i, 8);
}

/* Whole numbers of 16 bytes: as few of them as tell the number and its sign, the highest first. */
void tm_hash_16(const uint8_t *values, int64_t count, uint64_t *to) {
    for (int64_t i = 0; i < count; i++) {
        uint8_t turned[WIDE];
        for (int at = 0; at < WIDE; at++) turned[at] = values[WIDE * i + WIDE - 1 - at];
        uint8_t sign = turned[0] & 0x80 ? 0xFF : 0;
        int first = 0;
        while (first < WIDE - 1 && turned[first] == sign && !((turned[first + 1] ^ sign) & 0x80)) first++;
        to[i] = xxh64(turned + first, WIDE - first);
    }
}

void tm_hash_texts(const int32_t *offsets, const uint8_t *data, int64_t count, uint64_t *to) {
    for (int64_t i = 0; i < count; i++) to[i] = xxh64(data + offsets[i], offsets[i + 1] - offsets[i]);
}
