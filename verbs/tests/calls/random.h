/* What the random program knows: its generator, the objects that are alive, the requests that it
 * has posted, and what must hold of them. */
#ifndef CALLS_RANDOM_H
#define CALLS_RANDOM_H

#include "common.h"

/* SplitMix64. Each step starts at a state of its own, so that a step draws the same whatever
 * asynchronous errors have made of the steps before. */
static uint64_t drawn;

static inline uint64_t draw64(void)
{
	uint64_t z = drawn += 0x9e3779b97f4a7c15;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

static inline uint32_t draw(uint32_t below)
{
	return (uint32_t)(draw64() >> 32) % below;
}

static inline int percent(uint32_t chance)
{
	return draw(100) < chance;
}

static inline void draw_bytes(void *to, size_t len)
{
	for (size_t n = 0; n < len; n++)
		((uint8_t *)to)[n] = (uint8_t)draw(256);
}

/* Numbers as they are in wrong arguments. */
static inline uint64_t draw_number(void)
{
	static const uint64_t edges[] = {0,	    1,		2,	    15,		16,
					 17,	    4095,	4096,	    INT32_MAX,	1ull << 31,
					 UINT32_MAX, UINT32_MAX + 1ull, INT64_MAX, UINT64_MAX};
	uint32_t edge = draw(20);
	return edge < 14 ? edges[edge] : draw64() >> draw(64);
}

/* Memory: pages that regions may write, a hole, pages that no region may write, pages that are
 * read-only, a hole. */
#define PAGE 4096ul
#define WRITABLE (32 * PAGE)
#define CONSTANT (16 * PAGE)
#define READ_ONLY (8 * PAGE)
static uint8_t *arena;
static const size_t arena_len = PAGE + WRITABLE + PAGE + CONSTANT + READ_ONLY + PAGE;
static const size_t constant_at = PAGE + WRITABLE + PAGE;
static uint64_t constant_hash;

static inline void make_arena(void)
{
	arena = pages(arena_len);
	draw_bytes(arena + constant_at, CONSTANT + READ_ONLY);
	constant_hash = hash(arena + constant_at, CONSTANT + READ_ONLY);
	EQ(mprotect(arena, PAGE, PROT_NONE), 0);
	EQ(mprotect(arena + PAGE + WRITABLE, PAGE, PROT_NONE), 0);
	EQ(mprotect(arena + constant_at + CONSTANT, READ_ONLY, PROT_READ), 0);
	EQ(mprotect(arena + arena_len - PAGE, PAGE, PROT_NONE), 0);
}

/* Room for a structure that ends where memory ends, so that an access beyond it is a fault. */
enum place { FIRST, SECOND, THIRD, PLACES };

static inline void *edge(enum place place, size_t size)
{
	static uint8_t *ends[PLACES];
	if (!ends[place]) {
		ends[place] = pages(5 * PAGE) + 4 * PAGE;
		EQ(mprotect(ends[place], PAGE, PROT_NONE), 0);
	}
	memset(ends[place] - 4 * PAGE, 0xa5, 4 * PAGE);
	return ends[place] - size;
}

/* A completion queue. It is kept beyond its end, as queue pairs are: completions may not be of one
 * that was destroyed. */
struct queue {
	struct queue *older;
	struct ibv_cq *cq;
	int overrun;
	/* Requests posted to it and not completed, now and at most. */
	uint64_t open, most;
};

struct pair {
	struct pair *older;
	struct ibv_qp *qp; /* NULL: destroyed */
	struct queue *send, *recv;
	struct ibv_pd *peer_pd;
	struct ibv_qp_cap cap;
	uint32_t number;
	int signals_all;
	/* The first request since the last RESET, and those that completed last. */
	uint64_t reset_at, last[2];
};

struct request {
	struct pair *pair;
	uint64_t bytes;
	int is_recv, must_complete, accepted, done, opcode;
};

/* Of all seeds: the step that runs, and the requests that succeeded. */
static struct {
	uint64_t step, succeeded;
} *volatile seen;

static struct request *requests;
static uint64_t posted, salt;

static struct ibv_context *contexts[3];
static struct ibv_pd *pds[3];
static struct ibv_mr *mrs[24];
static uint64_t iovas[24];
static unsigned accesses[24];
static struct queue *queues[6];
static struct pair *pairs[8];

#define ROOM(table) ((int)(sizeof(table) / sizeof((table)[0])))
/* The index of a place of a table that is free, or is not; -1 if there is none. */
#define PLACE(table, is_free)                                                          \
	({                                                                             \
		int place = -1, first = (int)draw(ROOM(table));                        \
		for (int n = 0; n < ROOM(table) && place < 0; n++)                     \
			if (((table)[(first + n) % ROOM(table)] == NULL) == (is_free)) \
				place = (first + n) % ROOM(table);                     \
		place;                                                                 \
	})
#define FREE(table) PLACE(table, 1)
#define LIVE(table) PLACE(table, 0)
#define ANY(table)                               \
	({                                       \
		int live = LIVE(table);          \
		live < 0 ? NULL : (table)[live]; \
	})

/* A call that returns 0 or an error, which is in errno, too. */
#define NUMBER(call)                                                             \
	({                                                                       \
		errno = 0;                                                       \
		int code = (call), code_errno = errno;                           \
		if (code < 0 || code > 4095 || (code && code != code_errno))     \
			FAIL("%s is %d with errno %d", #call, code, code_errno); \
		code;                                                            \
	})

/* A call that returns -1 and errno if it fails. */
#define MINUS_ONE(call)                                                                      \
	({                                                                                   \
		errno = 0;                                                                   \
		int minus = (call), minus_errno = errno;                                     \
		if (minus < -1 || (minus == -1 && (minus_errno <= 0 || minus_errno > 4095))) \
			FAIL("%s is %d with errno %d", #call, minus, minus_errno);           \
		minus;                                                                       \
	})

/* A call that returns NULL and errno if it fails. */
#define POINTER(call)                                                   \
	({                                                              \
		errno = 0;                                              \
		__typeof__(call) pointer = (call);                      \
		if (!pointer && (errno <= 0 || errno > 4095))           \
			FAIL("%s is NULL with errno %d", #call, errno); \
		pointer;                                                \
	})

static inline struct ibv_qp_attr attr_of(struct pair *pair, int mask)
{
	struct ibv_qp_attr *attr = edge(SECOND, sizeof(*attr));
	struct ibv_qp_init_attr *init = edge(THIRD, sizeof(*init));
	EQ(NUMBER(ibv_query_qp(pair->qp, attr, mask, init)), 0);
	EQ(attr->qp_state, pair->qp->state);
	EQ(init->send_cq == pair->send->cq && init->recv_cq == pair->recv->cq, 1);
	EQ(init->cap.max_send_wr, pair->cap.max_send_wr);
	return *attr;
}

/* Takes a completion down. */
static inline void completed(struct queue *queue, const struct ibv_wc *wc)
{
	static const int opcodes[] = {
		[IBV_WR_SEND] = IBV_WC_SEND,
		[IBV_WR_SEND_WITH_IMM] = IBV_WC_SEND,
		[IBV_WR_SEND_WITH_INV] = IBV_WC_SEND,
		[IBV_WR_RDMA_WRITE] = IBV_WC_RDMA_WRITE,
		[IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_WC_RDMA_WRITE,
		[IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ,
		[IBV_WR_ATOMIC_CMP_AND_SWP] = IBV_WC_COMP_SWAP,
		[IBV_WR_ATOMIC_FETCH_AND_ADD] = IBV_WC_FETCH_ADD,
	};
	uint64_t id = wc->wr_id ^ salt;
	if (id >= posted || !requests[id].accepted)
		FAIL("completion of %llu, which was not posted", (unsigned long long)id);
	struct request *request = &requests[id];
	struct pair *pair = request->pair;
	if (request->done++)
		FAIL("%llu completes again", (unsigned long long)id);
	queue->open--;
	EQ(pair->qp != NULL, 1);
	EQ(wc->qp_num, pair->number);
	EQ(queue == (request->is_recv ? pair->recv : pair->send), 1);
	uint64_t *last = &pair->last[request->is_recv];
	if (*last > id)
		FAIL("%llu completes after %llu", (unsigned long long)id,
		     (unsigned long long)*last);
	*last = id;
	EQ((unsigned)wc->status <= IBV_WC_TM_RNDV_INCOMPLETE, 1);
	if (wc->status != IBV_WC_SUCCESS)
		return;
	EQ(request->must_complete, 1);
	seen->succeeded++;
	if (!request->is_recv)
		EQ(wc->opcode, opcodes[request->opcode]);
	else if (wc->opcode != IBV_WC_RECV_RDMA_WITH_IMM)
		EQ(wc->opcode == IBV_WC_RECV && wc->byte_len <= request->bytes, 1);
}

/* Polls once; returns the completions. */
static inline int poll_queue(struct queue *queue, int entries)
{
	size_t room = entries > 0 ? (size_t)entries : 0;
	struct ibv_wc *wc = edge(FIRST, room * sizeof(*wc)), untouched;
	memset(&untouched, 0xa5, sizeof(untouched));
	errno = 0;
	int found = ibv_poll_cq(queue->cq, entries, room ? wc : NULL);
	if (found < 0 && entries < 0) {
		EQ(found, -errno);
	} else if (found < 0) {
		EQ(found, -EOVERFLOW);
		EQ(queue->overrun || queue->most > (uint64_t)queue->cq->cqe, 1);
		queue->overrun = 1;
	}
	EQ(found <= (int)room, 1);
	for (int n = 0; n < found; n++)
		completed(queue, &wc[n]);
	for (int n = found < 0 ? 0 : found; n < (int)room; n++)
		EQ(memcmp(&wc[n], &untouched, sizeof(untouched)), 0);
	return found;
}

static inline void fail_pair(struct pair *pair)
{
	struct ibv_qp_attr *attr = edge(FIRST, sizeof(*attr));
	attr->qp_state = IBV_QPS_ERR;
	EQ(NUMBER(ibv_modify_qp(pair->qp, attr, IBV_QP_STATE)), 0);
}

/* In ERR all that was posted completes. */
static inline void drain_pair(struct pair *pair)
{
	fail_pair(pair);
	struct queue *both[] = {pair->send, pair->recv};
	for (int n = 0; n < 2; n++)
		while (poll_queue(both[n], 16) > 0)
			;
	for (uint64_t id = pair->reset_at; id < posted; id++) {
		struct request *request = &requests[id];
		struct queue *queue = both[request->is_recv];
		if (request->pair == pair && request->accepted && request->must_complete &&
		    !request->done && !queue->overrun)
			FAIL("%llu never completes", (unsigned long long)id);
	}
}

#endif
