/* The aggregate functions: each folds its column, tuple by tuple in the order of the batch, into the
 * states of the windows of the batch. Folding one tuple after another makes every sum independent of
 * how the stream was cut into batches. */
#include "kernel.h"

/* Where the states of one function are: base, bytes from one window to the next, offset in a state. */
typedef struct { uint8_t *base; int64_t stride, at; } tm_states;
typedef struct { const uint8_t *data, *validity; int64_t first; } tm_column;
/* row == NULL: pair p is tuple p. window -1: the tuple is in no window. */
typedef struct { const int32_t *row, *window; int64_t count; } tm_updates;

typedef struct { i128 sum; int64_t count; } sum_i128;          /* count -1: overflowed, sum 0 */
typedef struct { double sum; int64_t count; } sum_f64;
typedef struct { int64_t count; double mean, m2; } moments;
typedef struct { int64_t value, seen; } held_8;                /* seen 0: nothing, 1: a value, 2: a null */
typedef struct { i128 value; int64_t seen; } held_16;
typedef struct { uint64_t place; uint32_t length; uint8_t seen, in_batch; uint16_t zero; } held_blob;

#define STATE(type, w) ((type *)(states->base + (int64_t)(w) * states->stride + states->at))
#define EACH_UPDATE                                                     \
    for (int64_t p = 0; p < updates->count; p++) {                      \
        int32_t w = updates->window[p];                                 \
        if (w < 0) continue;                                            \
        int64_t r = updates->row ? updates->row[p] : p;                 \
        int valid = is_valid(column->validity, column->first + r);
#define END_UPDATE }

static i128 decimal_limit(int64_t digits) {
    i128 limit = 1;
    while (digits-- > 0) limit *= 10;
    return limit;
}

static inline int64_t load_i64(const tm_column *c, int64_t r) { int64_t v; memcpy(&v, c->data + 8 * r, 8); return v; }
static inline double load_f64(const tm_column *c, int64_t r) { double v; memcpy(&v, c->data + 8 * r, 8); return v; }
static inline i128 load_i128(const tm_column *c, int64_t r) { i128 v; memcpy(&v, c->data + 16 * r, 16); return v; }

void tm_count(const tm_states *states, const tm_column *column, const tm_updates *updates) {
    EACH_UPDATE
        *STATE(int64_t, w) += valid;
    END_UPDATE
}

void tm_sum_i64(const tm_states *states, const tm_column *column, const tm_updates *updates) {
    EACH_UPDATE
        if (!valid) continue;
        sum_i128 *s = STATE(sum_i128, w);
        s->sum += load_i64(column, r);
        s->count++;
    END_UPDATE
}

void tm_sum_i128(const tm_states *states, const tm_column *column, const tm_updates *updates) {
    i128 limit = decimal_limit(38);
    EACH_UPDATE
        sum_i128 *s = STATE(sum_i128, w);
        if (!valid || s->count < 0) continue;
        i128 sum;
        int is_lost = __builtin_add_overflow(s->sum, load_i128(column, r), &sum);
        is_lost |= sum >= limit || sum <= -limit;
        s->sum = is_lost ? 0 : sum;
        s->count = is_lost ? -1 : s->count + 1;
    END_UPDATE
}

void tm_sum_f64(const tm_states *states, const tm_column *column, const tm_updates *updates) {
    EACH_UPDATE
        if (!valid) continue;
        sum_f64 *s = STATE(sum_f64, w);
        s->sum += load_f64(column, r);
        s->count++;
    END_UPDATE
}

void tm_moments(const tm_states *states, const tm_column *column, const tm_updates *updates) {
    EACH_UPDATE
        if (!valid) continue;
        moments *s = STATE(moments, w);
        double value = load_f64(column, r);
        s->count++;
        double delta = value - s->mean, part = delta / (double)s->count;
        s->mean += part;
        s->m2 += delta * (delta - part);
    END_UPDATE
}

/* Hashes of values: their first bits choose a register, which keeps how far from the front the next bit
 * that is set has been at most. */
void tm_sketch(const tm_states *states, const tm_column *column, const tm_updates *updates, int32_t bits) {
    EACH_UPDATE
        if (!valid) continue;
        uint64_t hash = (uint64_t)load_i64(column, r);
        uint8_t *own = STATE(uint8_t, w) + (hash >> (64 - bits));
        uint8_t place = (uint8_t)(__builtin_clzll(hash << bits | 1ull << (bits - 1)) + 1);
        if (place > *own) *own = place;
    END_UPDATE
}

/* NaN is greater than any other value; of equal values the first stays. */
static inline int precedes_f64(double a, double b) { return a < b || (b != b && a == a); }

#define EXTREME(name, held, type, load, precedes)                                                       \
    void name(const tm_states *states, const tm_column *column, const tm_updates *updates, int32_t is_max) { \
        EACH_UPDATE                                                                                     \
            if (!valid) continue;                                                                       \
            held *s = STATE(held, w);                                                                   \
            type value = load(column, r), current;                                                      \
            memcpy(&current, &s->value, sizeof(type));                                                  \
            if (!s->seen || (is_max ? precedes(current, value) : precedes(value, current)))             \
                memcpy(&s->value, &value, sizeof(type));                                                \
            s->seen = 1;                                                                                \
        END_UPDATE                                                                                      \
    }
#define LESS(a, b) ((a) < (b))
EXTREME(tm_extreme_i64, held_8, int64_t, load_i64, LESS)
EXTREME(tm_extreme_f64, held_8, double, load_f64, precedes_f64)
EXTREME(tm_extreme_i128, held_16, i128, load_i128, LESS)

/* First or last value; `skip_nulls` passes over nulls instead of holding them. */
#define PICK(name, held, width)                                                                         \
    void name(const tm_states *states, const tm_column *column, const tm_updates *updates,              \
              int32_t is_last, int32_t skip_nulls) {                                                    \
        EACH_UPDATE                                                                                     \
            held *s = STATE(held, w);                                                                   \
            if ((!valid && skip_nulls) || (s->seen && !is_last)) continue;                              \
            if (valid) memcpy(&s->value, column->data + width * r, width);                              \
            else memset(&s->value, 0, width);                                                           \
            s->seen = valid ? 1 : 2;                                                                    \
        END_UPDATE                                                                                      \
    }
PICK(tm_pick_8, held_8, 8)
PICK(tm_pick_16, held_16, 16)

/* Strings: a state holds the place of its bytes, in the table's heap or in the running batch. */

typedef struct { const int32_t *offsets; const uint8_t *data, *heap; } tm_bytes;

static inline const uint8_t *blob_bytes(const tm_bytes *b, const held_blob *s) {
    return (s->in_batch ? b->data : b->heap) + s->place;
}

static inline void hold_blob(const tm_bytes *bytes, held_blob *s, int64_t row, int valid) {
    s->place = valid ? (uint64_t)bytes->offsets[row] : 0;
    s->length = valid ? (uint32_t)(bytes->offsets[row + 1] - bytes->offsets[row]) : 0;
    s->seen = valid ? 1 : 2;
    s->in_batch = 1;
}

static int compare_bytes(const uint8_t *a, int64_t a_length, const uint8_t *b, int64_t b_length) {
    int order = memcmp(a, b, (size_t)(a_length < b_length ? a_length : b_length));
    return order ? order : (a_length > b_length) - (a_length < b_length);
}

void tm_extreme_blob(const tm_states *states, const tm_column *column, const tm_updates *updates,
                     const tm_bytes *bytes, int32_t is_max) {
    EACH_UPDATE
        if (!valid) continue;
        held_blob *s = STATE(held_blob, w);
        const uint8_t *value = bytes->data + bytes->offsets[r];
        int order = s->seen ? compare_bytes(value, bytes->offsets[r + 1] - bytes->offsets[r],
                                            blob_bytes(bytes, s), s->length) : 0;
        if (!s->seen || (is_max ? order > 0 : order < 0)) hold_blob(bytes, s, r, 1);
    END_UPDATE
}

void tm_pick_blob(const tm_states *states, const tm_column *column, const tm_updates *updates,
                  const tm_bytes *bytes, int32_t is_last, int32_t skip_nulls) {
    EACH_UPDATE
        held_blob *s = STATE(held_blob, w);
        if ((!valid && skip_nulls) || (s->seen && !is_last)) continue;
        hold_blob(bytes, s, r, valid);
    END_UPDATE
}

/* Heap bytes that storing the strings held from the batch may take. */
int64_t tm_blobs_need(const tm_states *states, const tm_local *local) {
    int64_t total = 0;
    for (int64_t w = 0; w < local->count; w++) {
        const held_blob *s = STATE(held_blob, w);
        if (!local->is_closed[w] && s->in_batch && s->length) total += heap_block_bytes(s->length);
    }
    return total;
}

/* Moves strings held from the batch into the heap and frees what no window refers to any more. */
void tm_store_blobs(tm_table *t, const tm_states *states, const tm_local *local, const tm_bytes *bytes) {
    for (int64_t w = 0; w < local->count; w++) {
        held_blob *s = STATE(held_blob, w);
        if (local->is_prior[w] && (local->is_closed[w] || s->in_batch)) {
            held_blob *old = (held_blob *)(slot_state(t, slot_at(t, local->slot[w])) + states->at);
            if (old->length) heap_free_block(t, old->place, old->length);
        }
        if (local->is_closed[w] || !s->in_batch) continue;
        s->place = s->length ? heap_put(t, blob_bytes(bytes, s), s->length) : 0;
        s->in_batch = 0;
    }
}

/* Strings of the given states, one after another with their offsets; call first with to = NULL. */
int64_t tm_read_blobs(const tm_states *states, const int64_t *which, int64_t count, const tm_bytes *bytes,
                      int32_t *offsets, uint8_t *to) {
    int64_t total = 0;
    for (int64_t i = 0; i < count; i++) {
        const held_blob *s = STATE(held_blob, which ? which[i] : i);
        if (to) {
            offsets[i] = (int32_t)total;
            memcpy(to + total, blob_bytes(bytes, s), s->length);
        }
        total += s->length;
    }
    if (to) offsets[count] = (int32_t)total;
    return total;
}

/* Results from sums. `ok`: 1 a value, 0 null (no tuple), 2 does not fit. */

void tm_mean_i128(const tm_states *states, int64_t count, double *to, uint8_t *ok) {
    for (int64_t w = 0; w < count; w++) {
        const sum_i128 *s = STATE(sum_i128, w);
        ok[w] = s->count > 0;
        to[w] = s->count > 0 ? (double)s->sum / (double)s->count : 0.0;
    }
}

void tm_total_i64(const tm_states *states, int64_t count, int64_t *to, uint8_t *ok) {
    for (int64_t w = 0; w < count; w++) {
        const sum_i128 *s = STATE(sum_i128, w);
        to[w] = (int64_t)s->sum;
        ok[w] = s->count == 0 ? 0 : s->sum == (i128)to[w] ? 1 : 2;
    }
}

void tm_total_decimal(const tm_states *states, int64_t count, int64_t digits, i128 *to, uint8_t *ok) {
    i128 limit = decimal_limit(digits);
    for (int64_t w = 0; w < count; w++) {
        const sum_i128 *s = STATE(sum_i128, w);
        to[w] = s->sum;
        ok[w] = s->count == 0 ? 0 : s->count > 0 && s->sum < limit && s->sum > -limit ? 1 : 2;
    }
}

/* Mean with `more` further decimal digits, rounded half away from zero. */
void tm_mean_decimal(const tm_states *states, int64_t count, int64_t more, int64_t digits, i128 *to, uint8_t *ok) {
    i128 limit = decimal_limit(digits), scale = decimal_limit(more);
    for (int64_t w = 0; w < count; w++) {
        const sum_i128 *s = STATE(sum_i128, w);
        ok[w] = s->count == 0 ? 0 : s->count < 0 ? 2 : 1;
        to[w] = 0;
        if (ok[w] != 1) continue;
        i128 sum = s->sum < 0 ? -s->sum : s->sum, n = s->count;
        i128 whole = sum / n, rest = (sum % n) * scale;
        i128 part = rest / n + (2 * (rest % n) >= n);
        if (whole > limit / scale) { ok[w] = 2; continue; }
        whole = whole * scale + part;
        if (whole >= limit) { ok[w] = 2; continue; }
        to[w] = s->sum < 0 ? -whole : whole;
    }
}
