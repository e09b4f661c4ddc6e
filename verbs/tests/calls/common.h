/* What the programs of these tests share: checks, a connection to set up, and the other end as a
 * process of its own. Failures are printed on stdout; stderr is the library's. */
#ifndef CALLS_COMMON_H
#define CALLS_COMMON_H

#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FAIL(...)                                                                                 \
	do {                                                                                      \
		printf("%s:%d: ", __FILE__, __LINE__);                                            \
		printf(__VA_ARGS__);                                                              \
		printf("\n");                                                                     \
		fflush(stdout);                                                                   \
		_exit(1);                                                                         \
	} while (0)

/* Numbers that must be equal. */
#define EQ(left, right)                                                                           \
	do {                                                                                      \
		long long eq_left = (long long)(left), eq_right = (long long)(right);             \
		if (eq_left != eq_right)                                                          \
			FAIL("%s is %lld, expected %s = %lld", #left, eq_left, #right, eq_right); \
	} while (0)

/* A pointer that must not be NULL. */
#define SOME(pointer)                                                             \
	({                                                                        \
		errno = 0;                                                        \
		__typeof__(pointer) some = (pointer);                             \
		if (!some)                                                        \
			FAIL("%s is NULL: %s", #pointer, strerror(errno));        \
		some;                                                             \
	})

/* A call that must return NULL and set errno. */
#define NULL_WITH(call, expected)                                                          \
	do {                                                                               \
		errno = 0;                                                                 \
		void *with = (void *)(call);                                               \
		int with_errno = errno;                                                    \
		if (with || with_errno != (expected))                                      \
			FAIL("%s is %p with errno %d, expected NULL with %s", #call, with, \
			     with_errno, #expected);                                       \
	} while (0)

/* A call that must return an error, and leave it in errno, too. */
#define ERROR_OF(call, expected)                                                         \
	do {                                                                             \
		errno = 0;                                                               \
		int error = (call), error_errno = errno;                                 \
		if (error != (expected) || error_errno != (expected))                    \
			FAIL("%s is %d with errno %d, expected %s", #call, error,        \
			     error_errno, #expected);                                    \
	} while (0)

/* A device, with what nearly every program makes of it. */
struct node {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t *memory;
	size_t size;
};

/* What a peer needs to know. */
struct address {
	union ibv_gid gid;
	uint32_t qpn, psn, rkey;
	uint64_t memory;
};

#define ALL_ACCESS                                                                           \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |         \
	 IBV_ACCESS_REMOTE_ATOMIC)
#define TO_INIT (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define TO_RTR                                                                               \
	(IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |      \
	 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define TO_RTS                                                                               \
	(IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |               \
	 IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC)

static inline struct ibv_context *open_only_device(void)
{
	int count = -1;
	struct ibv_device **list = SOME(ibv_get_device_list(&count));
	EQ(count, 1);
	struct ibv_context *context = SOME(ibv_open_device(list[0]));
	ibv_free_device_list(list);
	return context;
}

/* Whole pages, filled with zeros. */
static inline uint8_t *pages(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		FAIL("mmap of %zu bytes: %s", size, strerror(errno));
	return memory;
}

static inline struct node open_node(size_t size)
{
	struct node node = {.context = open_only_device(), .size = size};
	node.pd = SOME(ibv_alloc_pd(node.context));
	node.cq = SOME(ibv_create_cq(node.context, 4096, NULL, NULL, 0));
	node.memory = pages(size);
	node.mr = SOME(ibv_reg_mr(node.pd, node.memory, size, ALL_ACCESS));
	return node;
}

static inline void close_node(struct node *node)
{
	EQ(ibv_dereg_mr(node->mr), 0);
	EQ(ibv_destroy_cq(node->cq), 0);
	EQ(ibv_dealloc_pd(node->pd), 0);
	EQ(ibv_close_device(node->context), 0);
	EQ(munmap(node->memory, node->size), 0);
}

static inline struct ibv_qp_init_attr init_of(const struct node *node)
{
	return (struct ibv_qp_init_attr){
		.send_cq = node->cq,
		.recv_cq = node->cq,
		.cap = {.max_send_wr = 64,
			.max_recv_wr = 128,
			.max_send_sge = 4,
			.max_recv_sge = 4,
			.max_inline_data = 256},
		.qp_type = IBV_QPT_RC,
	};
}

static inline struct ibv_qp *make_qp(const struct node *node)
{
	struct ibv_qp_init_attr init = init_of(node);
	return SOME(ibv_create_qp(node->pd, &init));
}

static inline struct address address_of(const struct node *node, const struct ibv_qp *qp)
{
	struct address address = {
		.qpn = qp->qp_num,
		.psn = 0xfffff0, /* wraps after 16 packets */
		.rkey = node->mr->rkey,
		.memory = (uintptr_t)node->memory,
	};
	EQ(ibv_query_gid(node->context, 1, 0, &address.gid), 0);
	return address;
}

static inline struct ibv_qp_attr attr_init(void)
{
	return (struct ibv_qp_attr){
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ALL_ACCESS};
}

static inline struct ibv_qp_attr attr_rtr(const struct address *peer)
{
	return (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = peer->qpn,
		.rq_psn = peer->psn,
		.max_dest_rd_atomic = 16,
		.min_rnr_timer = 1,
		.ah_attr = {.is_global = 1,
			    .port_num = 1,
			    .grh = {.dgid = peer->gid, .hop_limit = 64}},
	};
}

/* A timeout of 2^timeout * 4.096 us; 0: none. */
static inline struct ibv_qp_attr attr_rts(uint32_t psn, uint8_t timeout, uint8_t retry_cnt)
{
	return (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.timeout = timeout,
		.retry_cnt = retry_cnt,
		.rnr_retry = 7,
		.sq_psn = psn,
		.max_rd_atomic = 16,
	};
}

static inline void to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = attr_init();
	EQ(ibv_modify_qp(qp, &attr, TO_INIT), 0);
}

static inline void to_rtr(struct ibv_qp *qp, const struct address *peer)
{
	struct ibv_qp_attr attr = attr_rtr(peer);
	EQ(ibv_modify_qp(qp, &attr, TO_RTR), 0);
}

/* From RESET to RTS. */
static inline void connect_qp(struct ibv_qp *qp, const struct address *peer, uint32_t psn,
			      uint8_t timeout, uint8_t retry_cnt)
{
	to_init(qp);
	to_rtr(qp, peer);
	struct ibv_qp_attr attr = attr_rts(psn, timeout, retry_cnt);
	EQ(ibv_modify_qp(qp, &attr, TO_RTS), 0);
}

/* For tests in which nothing is lost: 1.07 s, so that a busy machine is no loss. */
#define TIMEOUT 18

static inline enum ibv_qp_state state_of(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
	EQ(attr.qp_state, qp->state);
	return attr.qp_state;
}

static inline double seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

/* The next completion of a queue. */
static inline struct ibv_wc next_wc(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	for (double end = seconds() + 60; seconds() < end;) {
		int polled = ibv_poll_cq(cq, 1, &wc);
		if (polled == 1)
			return wc;
		EQ(polled, 0);
	}
	FAIL("no completion for 60 s");
}

/* The next completion must be this one. */
#define COMPLETES(cq, id, expected)                                                           \
	({                                                                                    \
		struct ibv_wc done = next_wc(cq);                                             \
		if (done.wr_id != (uint64_t)(id) || done.status != (expected))                \
			FAIL("request %llu: %s, expected %llu: %s",                           \
			     (unsigned long long)done.wr_id, ibv_wc_status_str(done.status),  \
			     (unsigned long long)(id), ibv_wc_status_str(expected));          \
		done;                                                                         \
	})

static inline void read_all(int fd, void *to, size_t len)
{
	for (size_t got = 0; got < len;) {
		ssize_t n = read(fd, (char *)to + got, len - got);
		if (n <= 0)
			FAIL("the other end is gone: %zd", n);
		got += (size_t)n;
	}
}

static inline void write_all(int fd, const void *from, size_t len)
{
	EQ(write(fd, from, len), len);
}

static inline struct address exchange(int fd, const struct address *own)
{
	struct address peer;
	write_all(fd, own, sizeof(*own));
	read_all(fd, &peer, sizeof(peer));
	return peer;
}

/* Returns when the other end has called it as often. */
static inline void meet(int fd)
{
	char byte = 0;
	write_all(fd, &byte, 1);
	read_all(fd, &byte, 1);
}

/* Connects a queue pair with that of the other end. */
static inline struct address connect_over(int fd, const struct node *node, struct ibv_qp *qp,
					  uint8_t timeout, uint8_t retry_cnt)
{
	struct address own = address_of(node, qp), peer = exchange(fd, &own);
	connect_qp(qp, &peer, own.psn, timeout, retry_cnt);
	meet(fd);
	return peer;
}

/* Starts this program again as the other end, at the next address. It has the same arguments and
 * the number of a socket, whose other half is returned. */
static inline int start_peer(char **argv, pid_t *pid)
{
	int ends[2];
	EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	*pid = fork();
	if (*pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(ends[0]);
		uint32_t address = ntohl(inet_addr(getenv("SPANWIRE_ADDR"))) + 1;
		struct in_addr next = {.s_addr = htonl(address)};
		setenv("SPANWIRE_ADDR", inet_ntoa(next), 1);
		char number[16];
		snprintf(number, sizeof(number), "%d", ends[1]);
		execl(argv[0], argv[0], argv[1], number, NULL);
		FAIL("exec of %s: %s", argv[0], strerror(errno));
	}
	EQ(*pid > 0, 1);
	close(ends[1]);
	return ends[0];
}

/* The process must end without a failure. */
static inline void join_peer(pid_t pid)
{
	int status;
	EQ(waitpid(pid, &status, 0), pid);
	EQ(status, 0);
}

/* FNV-1a. */
static inline uint64_t hash(const uint8_t *bytes, size_t len)
{
	uint64_t hash = 0xcbf29ce484222325;
	for (size_t n = 0; n < len; n++)
		hash = (hash ^ bytes[n]) * 0x100000001b3;
	return hash;
}

/* A case of a program: its second argument. `fd` is the socket of the other end, -1 in the first
 * process. */
struct test {
	const char *name;
	void (*run)(char **argv, int fd);
};

static inline int run_case(const struct test *tests, size_t count, int argc, char **argv)
{
	alarm(120);
	for (size_t n = 0; argc > 1 && n < count; n++)
		if (strcmp(tests[n].name, argv[1]) == 0) {
			tests[n].run(argv, argc > 2 ? atoi(argv[2]) : -1);
			return 0;
		}
	FAIL("no such case");
}

#define RUN(tests) run_case(tests, sizeof(tests) / sizeof(tests[0]), argc, argv)

#endif
