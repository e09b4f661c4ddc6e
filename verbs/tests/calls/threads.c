/* Data from four threads over one queue pair to four threads: whole, and each completion once.
 * SPANWIRE_TEST_MIB: how much. */
#include "common.h"

#include <pthread.h>

#define THREADS 4
#define CHUNK 65536
#define SLOTS 32

static struct node node;
static struct ibv_qp *qp;
static struct address peer;
static uint64_t chunks;
/* Of each chunk: its hash, and how often it was completed. */
static uint64_t *hashes;
static unsigned *times;
static unsigned done;
static enum ibv_wr_opcode opcode;

static uint8_t *chunk_at(uint64_t n)
{
	return node.memory + n * CHUNK;
}

/* Other data in each chunk and each round; a SEND begins with the number of the chunk. */
static void fill(uint64_t round)
{
	for (uint64_t n = 0; n < chunks; n++) {
		uint64_t *words = (uint64_t *)chunk_at(n), state = (round << 32 | n) * 2 + 1;
		for (size_t at = 1; at < CHUNK / 8; at++) {
			state = state * 6364136223846793005u + 1442695040888963407u;
			words[at] = state ^ state >> 29;
		}
		words[0] = n;
		hashes[n] = hash(chunk_at(n), CHUNK);
	}
}

static void count(uint64_t chunk)
{
	if (chunk >= chunks)
		FAIL("there is no chunk %llu", (unsigned long long)chunk);
	EQ(__atomic_fetch_add(&times[chunk], 1, __ATOMIC_RELAXED), 0);
	__atomic_fetch_add(&done, 1, __ATOMIC_RELEASE);
}

/* Posts every fourth chunk. */
static void *post_all(void *first)
{
	for (uint64_t n = (uintptr_t)first; n < chunks; n += THREADS) {
		struct ibv_sge sge = {(uintptr_t)chunk_at(n), CHUNK, node.mr->lkey};
		struct ibv_send_wr wr = {
			.wr_id = n,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = opcode,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = {peer.memory + n * CHUNK, peer.rkey},
		}, *bad;
		int error;
		while ((error = ibv_post_send(qp, &wr, &bad)) == ENOMEM)
			sched_yield();
		EQ(error, 0);
	}
	return NULL;
}

static void post_slot(uint64_t slot)
{
	struct ibv_sge sge = {(uintptr_t)chunk_at(slot), CHUNK, node.mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;
	EQ(ibv_post_recv(qp, &wr, &bad), 0);
}

/* Polls until all chunks are complete; receives are checked and posted again. */
static void *poll_all(void *unused)
{
	struct ibv_wc wcs[7];
	double end = seconds() + 100;
	while (__atomic_load_n(&done, __ATOMIC_ACQUIRE) < chunks) {
		int polled = ibv_poll_cq(node.cq, 7, wcs);
		if (polled < 0 || polled > 7 || seconds() > end)
			FAIL("ibv_poll_cq: %d, %u of %llu are complete", polled, done,
			     (unsigned long long)chunks);
		for (int n = 0; n < polled; n++) {
			struct ibv_wc *wc = &wcs[n];
			if (wc->status)
				FAIL("request %llu: %s", (unsigned long long)wc->wr_id,
				     ibv_wc_status_str(wc->status));
			if (wc->opcode != IBV_WC_RECV) {
				count(wc->wr_id);
				continue;
			}
			EQ(wc->byte_len, CHUNK);
			uint64_t chunk = *(uint64_t *)chunk_at(wc->wr_id);
			count(chunk);
			EQ(hash(chunk_at(wc->wr_id), CHUNK), hashes[chunk]);
			post_slot(wc->wr_id);
		}
	}
	return unused;
}

static void run_threads(void *(*run)(void *), pthread_t *threads)
{
	for (uintptr_t n = 0; n < THREADS; n++)
		EQ(pthread_create(&threads[n], NULL, run, (void *)n), 0);
}

static void join(pthread_t *threads)
{
	for (int n = 0; n < THREADS; n++)
		EQ(pthread_join(threads[n], NULL), 0);
}

static void reset(void)
{
	memset(times, 0, chunks * sizeof(*times));
	done = 0;
}

static void send_side(int fd)
{
	pthread_t posting[THREADS], polling[THREADS];
	for (uint64_t round = 0; round < 2; round++) {
		opcode = round == 0 ? IBV_WR_RDMA_WRITE : IBV_WR_SEND;
		reset();
		fill(round);
		write_all(fd, hashes, chunks * sizeof(*hashes));
		meet(fd);
		run_threads(poll_all, polling);
		run_threads(post_all, posting);
		join(posting);
		join(polling);
		EQ(done, chunks);
		struct ibv_wc wc;
		EQ(ibv_poll_cq(node.cq, 1, &wc), 0);
		meet(fd);
	}
}

static void receive_side(int fd)
{
	/* WRITEs are only seen in memory. */
	read_all(fd, hashes, chunks * sizeof(*hashes));
	meet(fd);
	meet(fd);
	for (uint64_t n = 0; n < chunks; n++)
		EQ(hash(chunk_at(n), CHUNK), hashes[n]);

	read_all(fd, hashes, chunks * sizeof(*hashes));
	reset();
	for (uint64_t slot = 0; slot < SLOTS; slot++)
		post_slot(slot);
	meet(fd);
	pthread_t polling[THREADS];
	run_threads(poll_all, polling);
	join(polling);
	EQ(done, chunks);
	struct ibv_wc wc;
	EQ(ibv_poll_cq(node.cq, 1, &wc), 0);
	meet(fd);
}

static void threads(char **argv, int fd)
{
	int is_peer = fd >= 0;
	pid_t pid = 0;
	if (!is_peer)
		fd = start_peer(argv, &pid);
	chunks = strtoull(getenv("SPANWIRE_TEST_MIB"), NULL, 10) * (1 << 20) / CHUNK;
	EQ(chunks > SLOTS, 1);
	hashes = calloc(chunks, sizeof(*hashes));
	times = calloc(chunks, sizeof(*times));
	node = open_node(chunks * CHUNK);
	qp = make_qp(&node);
	/* 0.27 s: with losses it is waited for more than once. */
	peer = connect_over(fd, &node, qp, 16, 7);
	if (is_peer) {
		receive_side(fd);
	} else {
		send_side(fd);
		join_peer(pid);
	}
	EQ(ibv_destroy_qp(qp), 0);
	close_node(&node);
}

int main(int argc, char **argv)
{
	struct test tests[] = {{"threads", threads}};
	return RUN(tests);
}
