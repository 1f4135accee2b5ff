#include "deflate.h"

#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW 32768u /* how far back a match may lie */
#define BLOCK 131072u /* input bytes of a block, which has codes of its own */
#define HASH_BITS 14
#define MATCH_MIN 4u /* shorter ones gain little */
#define MATCH_MAX 258u

#define N_LITLEN 286u
#define N_DIST 30u
#define N_LENGTH 19u /* symbols that code lengths are written with */
#define END_OF_BLOCK 256u
#define MAX_BITS 15u

/* The codes of one alphabet: RFC 1951, 3.2.2; bits are in the order in which they are written. */
struct codes {
	uint16_t bits[N_LITLEN];
	uint8_t len[N_LITLEN];
};

struct deflate {
	uint8_t in[WINDOW + BLOCK];     /* what matches may lie in, then the block */
	size_t start, len;              /* of the block */
	uint32_t head[1u << HASH_BITS]; /* by hash of four bytes: a place in `in` + 1 */
	uint32_t tokens[BLOCK + 1];     /* literals, or a length and, shifted by 9, a distance */
	size_t n_tokens;
	uint32_t n_litlen[N_LITLEN], n_dist[N_DIST]; /* how many of each symbol */
	struct codes litlen, dist;
	uint64_t bits; /* not written yet: n_bits of them */
	unsigned n_bits;
	uint32_t crc;
	uint32_t size;
	bool begun;
};

/* RFC 1951, 3.2.5. */
static const uint16_t length_base[] = {3,  4,  5,  6,   7,   8,   9,   10,  11, 13,
				       15, 17, 19, 23,  27,  31,  35,  43,  51, 59,
				       67, 83, 99, 115, 131, 163, 195, 227, 258};
static const uint8_t length_extra[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
				       2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};

static unsigned length_symbol(unsigned length)
{
	if (length == MATCH_MAX)
		return 28;
	unsigned x = length - 3;
	if (x < 8)
		return x;
	unsigned top = 31 - (unsigned)__builtin_clz(x);
	return 4 * (top - 1) + (x >> (top - 2) & 3);
}

/* Symbols 2n and 2n + 1 begin at 2^n and 1.5 * 2^n, and have n - 1 more bits. */
static unsigned dist_symbol(unsigned dist)
{
	unsigned x = dist - 1;
	if (x < 2)
		return x;
	unsigned top = 31 - (unsigned)__builtin_clz(x);
	return 2 * top + (x >> (top - 1) & 1);
}

static unsigned dist_extra(unsigned symbol)
{
	return symbol < 4 ? 0 : symbol / 2 - 1;
}

static unsigned dist_base(unsigned symbol)
{
	return symbol < 2 ? symbol + 1 : ((2 + (symbol & 1)) << (symbol / 2 - 1)) + 1;
}

struct deflate *deflate_new(void)
{
	return calloc(1, sizeof(struct deflate));
}

void deflate_free(struct deflate *d)
{
	free(d);
}

/* n bits of v, the least first; the buffer has room. */
static void put_bits(struct deflate *d, struct sp_buf *out, uint64_t v, unsigned n)
{
	d->bits |= v << d->n_bits;
	d->n_bits += n;
	if (d->n_bits < 32)
		return;
	uint32_t word = (uint32_t)d->bits; /* little-endian, as the format is */
	memcpy(out->data + out->len, &word, sizeof word);
	out->len += sizeof word;
	d->bits >>= 32;
	d->n_bits -= 32;
}

/* Code lengths of a Huffman code of those frequencies, none above `most`: in symbol order of rising
 * frequency, the two least weights become one, again and again (Huffman 1952, with the two queues
 * of van Leeuwen 1976). Too long ones are cut, and the sum of 2^-length is brought back to 1 by
 * making short ones longer. */
struct weight {
	uint32_t n;
	uint16_t symbol;
};

static int by_weight(const void *a, const void *b)
{
	const struct weight *x = a, *y = b;
	if (x->n != y->n)
		return x->n < y->n ? -1 : 1;
	return (int)x->symbol - (int)y->symbol;
}

/* The depth of each leaf of the tree, by its place in w; n is 2 at least. */
static void depths(const struct weight *w, unsigned n, uint8_t *depth)
{
	uint64_t sum[N_LITLEN];
	uint16_t parent[2 * N_LITLEN] = {0}; /* leaves, then inner nodes */
	uint8_t level[2 * N_LITLEN];
	unsigned leaf = 0, inner = 0;
	for (unsigned made = 0; made < n - 1; made++) {
		sum[made] = 0;
		for (unsigned k = 0; k < 2; k++) {
			bool take_leaf = leaf < n && (inner >= made || w[leaf].n <= sum[inner]);
			sum[made] += take_leaf ? w[leaf].n : sum[inner];
			parent[take_leaf ? leaf++ : n + inner++] = (uint16_t)(n + made);
		}
	}
	level[2 * n - 2] = 0;
	for (unsigned i = 2 * n - 2; i-- > 0;)
		level[i] = (uint8_t)(level[parent[i]] + 1);
	memcpy(depth, level, n);
}

static void limit(uint8_t *depth, unsigned n, unsigned most)
{
	uint32_t sum = 0, whole = 1u << most; /* of 2^-depth, in units of 2^-most */
	for (unsigned i = 0; i < n; i++) {
		depth[i] = depth[i] > most ? (uint8_t)most : depth[i];
		sum += whole >> depth[i];
	}
	/* The rarest of those that can be longer pay; then what is left over is given back. */
	while (sum > whole) {
		unsigned i = 0;
		while (depth[i] == most)
			i++;
		depth[i]++;
		sum -= whole >> depth[i];
	}
	for (unsigned i = n; i-- > 0;)
		while (depth[i] > 1 && sum + (whole >> depth[i]) <= whole) {
			sum += whole >> depth[i];
			depth[i]--;
		}
}

static void make_bits(struct codes *c, unsigned n)
{
	unsigned count[MAX_BITS + 1] = {0}, next[MAX_BITS + 2] = {0};
	for (unsigned i = 0; i < n; i++)
		count[c->len[i]]++;
	count[0] = 0;
	for (unsigned i = 1; i <= MAX_BITS; i++)
		next[i + 1] = (next[i] + count[i]) << 1;
	for (unsigned i = 0; i < n; i++) {
		unsigned code = c->len[i] ? next[c->len[i]]++ : 0, back = 0;
		for (unsigned k = 0; k < c->len[i]; k++)
			back |= (code >> k & 1) << (c->len[i] - 1 - k);
		c->bits[i] = (uint16_t)back;
	}
}

static void make_codes(struct codes *c, const uint32_t *freq, unsigned n, unsigned most)
{
	struct weight w[N_LITLEN];
	uint8_t depth[N_LITLEN];
	unsigned used = 0;
	memset(c, 0, sizeof *c);
	for (unsigned i = 0; i < n; i++)
		if (freq[i])
			w[used++] = (struct weight){freq[i], (uint16_t)i};
	/* A code has two symbols at least: some readers refuse others. */
	for (unsigned i = 0; used < 2; i++)
		if (!freq[i])
			w[used++] = (struct weight){1, (uint16_t)i};
	qsort(w, used, sizeof *w, by_weight);
	depths(w, used, depth);
	limit(depth, used, most);
	for (unsigned i = 0; i < used; i++)
		c->len[w[i].symbol] = depth[i];
	make_bits(c, n);
}

/* RFC 1951, 3.2.7: the lengths of both codes, as runs. */
struct run {
	uint8_t symbol, extra;
};

static unsigned make_runs(const uint8_t *len, unsigned n, struct run *runs)
{
	unsigned n_runs = 0;
	for (unsigned i = 0, j; i < n; i = j) {
		for (j = i + 1; j < n && len[j] == len[i] && j - i < (len[i] ? 7 : 138); j++)
			;
		unsigned same = j - i;
		if (!len[i] && same >= 3) {
			runs[n_runs++] = same < 11 ? (struct run){17, (uint8_t)(same - 3)}
						   : (struct run){18, (uint8_t)(same - 11)};
			continue;
		}
		runs[n_runs++] = (struct run){len[i], 0};
		if (len[i] && same >= 4)
			runs[n_runs++] = (struct run){16, (uint8_t)(same - 4)};
		else
			j = i + 1;
	}
	return n_runs;
}

static void put_header(struct deflate *d, struct sp_buf *out, bool last)
{
	static const uint8_t order[N_LENGTH] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
						11, 4,  12, 3, 13, 2, 14, 1, 15};
	static const uint8_t extra[N_LENGTH] = {[16] = 2, [17] = 3, [18] = 7};
	uint8_t len[N_LITLEN + N_DIST];
	struct run runs[N_LITLEN + N_DIST];
	uint32_t freq[N_LENGTH] = {0};
	struct codes c;
	memcpy(len, d->litlen.len, N_LITLEN);
	memcpy(len + N_LITLEN, d->dist.len, N_DIST);
	unsigned n = make_runs(len, N_LITLEN + N_DIST, runs), shown = N_LENGTH;
	for (unsigned i = 0; i < n; i++)
		freq[runs[i].symbol]++;
	make_codes(&c, freq, N_LENGTH, 7);
	while (shown > 4 && !c.len[order[shown - 1]])
		shown--;
	put_bits(d, out, last, 1);
	put_bits(d, out, 2, 2); /* with codes of its own */
	put_bits(d, out, N_LITLEN - 257, 5);
	put_bits(d, out, N_DIST - 1, 5);
	put_bits(d, out, shown - 4, 4);
	for (unsigned i = 0; i < shown; i++)
		put_bits(d, out, c.len[order[i]], 3);
	for (unsigned i = 0; i < n; i++) {
		put_bits(d, out, c.bits[runs[i].symbol], c.len[runs[i].symbol]);
		put_bits(d, out, runs[i].extra, extra[runs[i].symbol]);
	}
}

static uint32_t load32(const uint8_t *p)
{
	uint32_t v;
	memcpy(&v, p, sizeof v);
	return v;
}

static unsigned match_length(const uint8_t *a, const uint8_t *b, unsigned most)
{
	unsigned n = MATCH_MIN;
	for (; n + 8 <= most; n += 8) {
		uint64_t x, y;
		memcpy(&x, a + n, 8);
		memcpy(&y, b + n, 8);
		if (x != y)
			return n + (unsigned)__builtin_ctzll(x ^ y) / 8; /* little-endian */
	}
	while (n < most && a[n] == b[n])
		n++;
	return n;
}

/* The block as literals and matches, each match the last place where four bytes were seen. */
static void make_tokens(struct deflate *d)
{
	size_t at = d->start, end = d->start + d->len;
	d->n_tokens = 0;
	memset(d->n_litlen, 0, sizeof d->n_litlen);
	memset(d->n_dist, 0, sizeof d->n_dist);
	while (at + MATCH_MIN <= end) {
		uint32_t four = load32(d->in + at);
		uint32_t *head = &d->head[four * 2654435761u >> (32 - HASH_BITS)];
		size_t was = *head;
		*head = (uint32_t)at + 1;
		if (!was || at + 1 - was > WINDOW || load32(d->in + was - 1) != four) {
			d->n_litlen[d->in[at]]++;
			d->tokens[d->n_tokens++] = d->in[at++];
			continue;
		}
		size_t most = end - at < MATCH_MAX ? end - at : MATCH_MAX;
		unsigned n = match_length(d->in + at, d->in + was - 1, (unsigned)most);
		unsigned dist = (unsigned)(at + 1 - was);
		d->n_litlen[257 + length_symbol(n)]++;
		d->n_dist[dist_symbol(dist)]++;
		d->tokens[d->n_tokens++] = dist << 9 | n;
		at += n;
	}
	for (; at < end; at++) {
		d->n_litlen[d->in[at]]++;
		d->tokens[d->n_tokens++] = d->in[at];
	}
	d->n_litlen[END_OF_BLOCK]++;
}

static void put_tokens(struct deflate *d, struct sp_buf *out)
{
	const struct codes *l = &d->litlen, *s = &d->dist;
	for (size_t i = 0; i < d->n_tokens; i++) {
		unsigned dist = d->tokens[i] >> 9, n = d->tokens[i] & 511;
		if (!dist) {
			put_bits(d, out, l->bits[n], l->len[n]);
			continue;
		}
		unsigned a = length_symbol(n), b = dist_symbol(dist);
		unsigned n_a = length_extra[a], n_b = dist_extra(b);
		put_bits(d, out,
			 l->bits[257 + a] | (uint64_t)(n - length_base[a]) << l->len[257 + a],
			 l->len[257 + a] + n_a);
		put_bits(d, out, s->bits[b] | (uint64_t)(dist - dist_base(b)) << s->len[b],
			 s->len[b] + n_b);
	}
	put_bits(d, out, l->bits[END_OF_BLOCK], l->len[END_OF_BLOCK]);
}

/* What is in is compressed, and its end stays for the matches of the next block. */
static void put_block(struct deflate *d, struct sp_buf *out, bool last)
{
	/* No token needs more bits than its bytes: 15 a literal, 48 a match of four and more. */
	if (!sp_buf_reserve(out, 2 * (size_t)BLOCK + 4096))
		return;
	make_tokens(d);
	make_codes(&d->litlen, d->n_litlen, N_LITLEN, MAX_BITS);
	make_codes(&d->dist, d->n_dist, N_DIST, MAX_BITS);
	put_header(d, out, last);
	put_tokens(d, out);
	size_t end = d->start + d->len, keep = end < WINDOW ? end : WINDOW, gone = end - keep;
	memmove(d->in, d->in + gone, keep);
	for (size_t i = 0; gone && i < 1u << HASH_BITS; i++)
		d->head[i] = d->head[i] > gone ? d->head[i] - (uint32_t)gone : 0;
	d->start = keep;
	d->len = 0;
}

/* No time and no name, so that equal profiles give equal bytes; XFL 4: quickly made; from Unix. */
static void begin(struct deflate *d, struct sp_buf *out)
{
	static const uint8_t head[] = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 3};
	if (!d->begun)
		sp_buf_add(out, head, sizeof head);
	d->begun = true;
}

void deflate_add(struct deflate *d, const void *data, size_t n, struct sp_buf *out)
{
	const uint8_t *p = data;
	begin(d, out);
	d->crc = libdeflate_crc32(d->crc, p, n);
	d->size += (uint32_t)n;
	while (n && !out->failed) {
		size_t step = BLOCK - d->len < n ? BLOCK - d->len : n;
		memcpy(d->in + d->start + d->len, p, step);
		d->len += step;
		p += step;
		n -= step;
		if (d->len == BLOCK)
			put_block(d, out, false);
	}
}

void deflate_end(struct deflate *d, struct sp_buf *out)
{
	begin(d, out);
	put_block(d, out, true);
	while (d->n_bits % 8)
		put_bits(d, out, 0, 8 - d->n_bits % 8);
	for (; d->n_bits; d->n_bits -= 8, d->bits >>= 8)
		sp_buf_u8(out, (uint8_t)d->bits);
	sp_buf_u32(out, d->crc);
	sp_buf_u32(out, d->size);
}
