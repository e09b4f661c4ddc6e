/* Random calls with random structures. Each seed is a process: it draws its calls, checks what each
 * returned and did, and at the end that everything can be destroyed and that new queue pairs work.
 *
 * Pointers are valid, or NULL where the manual page of a call takes an object; objects are alive,
 * lists as long as their lengths say, memory mapped while it is registered, and inline data
 * readable. Everything else is the undefined behaviour of the caller, as with any libibverbs.
 *
 * Environment: SPANWIRE_TEST_SEED is the first seed (1), SPANWIRE_TEST_SEEDS how many follow from
 * there (30), SPANWIRE_TEST_STEPS the calls of each (2000). */
#include "random_data.h"
#include "random_other.h"

/* Queue pairs that must work, whatever happens to the others. */
static struct node steady;
static struct ibv_qp *steady_qps[2];

static void open_steady(void)
{
	steady = open_node(2 * PAGE);
	struct address ends[2];
	for (int n = 0; n < 2; n++) {
		steady_qps[n] = make_qp(&steady);
		ends[n] = address_of(&steady, steady_qps[n]);
	}
	for (int n = 0; n < 2; n++)
		connect_qp(steady_qps[n], &ends[!n], ends[n].psn, 14, 7);
}

static void use_steady(void)
{
	struct ibv_sge from = {.addr = (uintptr_t)steady.memory, .length = 1 + draw(PAGE)};
	from.lkey = steady.mr->lkey;
	struct ibv_sge to = from;
	to.addr += PAGE;
	draw_bytes(steady.memory, from.length);
	int sender = (int)draw(2);
	struct ibv_recv_wr recv = {.wr_id = 1, .sg_list = &to, .num_sge = 1}, *bad_recv;
	struct ibv_send_wr send = {.wr_id = 2,
				   .sg_list = &from,
				   .num_sge = 1,
				   .opcode = IBV_WR_SEND,
				   .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	EQ(ibv_post_recv(steady_qps[!sender], &recv, &bad_recv), 0);
	EQ(ibv_post_send(steady_qps[sender], &send, &bad), 0);
	for (int n = 0; n < 2; n++)
		EQ(next_wc(steady.cq).status, IBV_WC_SUCCESS);
	EQ(memcmp(steady.memory, steady.memory + PAGE, from.length), 0);
}

static void close_steady(void)
{
	for (int n = 0; n < 2; n++)
		EQ(ibv_destroy_qp(steady_qps[n]), 0);
	close_node(&steady);
}

static void destroy_pair(int at)
{
	EQ(NUMBER(ibv_destroy_qp(pairs[at]->qp)), 0);
	pairs[at]->qp = NULL;
	pairs[at] = NULL;
}

static void destroy_pd(int at)
{
	int used = 0;
	for (int n = 0; n < ROOM(mrs); n++)
		used |= mrs[n] && mrs[n]->pd == pds[at];
	for (int n = 0; n < ROOM(pairs); n++)
		used |= pairs[n] && pairs[n]->qp->pd == pds[at];
	EQ(NUMBER(ibv_dealloc_pd(pds[at])), used ? EBUSY : 0);
	if (!used)
		pds[at] = NULL;
}

static void destroy_queue(int at)
{
	int used = 0;
	for (int n = 0; n < ROOM(pairs); n++)
		used |= pairs[n] &&
			(pairs[n]->send == queues[at] || pairs[n]->recv == queues[at]);
	EQ(NUMBER(ibv_destroy_cq(queues[at]->cq)), used ? EBUSY : 0);
	if (!used)
		queues[at] = NULL;
}

static void destroy_mr(int at)
{
	EQ(NUMBER(ibv_dereg_mr(mrs[at])), 0);
	mrs[at] = NULL;
}

static struct ibv_context *open_device(void)
{
	int count = -1;
	struct ibv_device **list = SOME(ibv_get_device_list(&count));
	struct ibv_context *context = SOME(ibv_open_device(list[draw((uint32_t)count)]));
	ibv_free_device_list(list);
	return context;
}

static void close_context(int at)
{
	int used = 0;
	for (int n = 0; n < ROOM(pds); n++)
		used |= pds[n] && pds[n]->context == contexts[at];
	for (int n = 0; n < ROOM(queues); n++)
		used |= queues[n] && queues[n]->cq->context == contexts[at];
	if (used)
		return;
	EQ(NUMBER(ibv_close_device(contexts[at])), 0);
	contexts[at] = NULL;
}

#define EACH(table, call)                        \
	for (int at = 0; at < ROOM(table); at++) \
		if ((table)[at])                 \
			call

static void end_all(void)
{
	EACH(pairs, drain_pair(pairs[at]));
	EACH(pairs, destroy_pair(at));
	EACH(mrs, destroy_mr(at));
	EACH(queues, destroy_queue(at));
	EACH(pds, destroy_pd(at));
	EACH(contexts, close_context(at));
	EQ(LIVE(pds) + LIVE(queues) + LIVE(contexts), -3);
	EQ(hash(arena + constant_at, CONSTANT + READ_ONLY), constant_hash);
	use_steady();
	close_steady();
	open_steady();
	use_steady();
}

static void make_mr(int at, struct ibv_pd *pd)
{
	uint64_t offset = percent(50) ? draw(WRITABLE / 64) * 64 + PAGE : draw((uint32_t)arena_len);
	/* No memory of others: none of a program is there. */
	uint64_t nowhere = draw_number();
	nowhere |= nowhere < PAGE ? 0 : 1ull << 63;
	void *addr = percent(90) ? arena + offset : (void *)nowhere;
	uint64_t len = percent(80) ? 1 + draw(4 * PAGE) : draw_number();
	unsigned access = percent(70) ? ALL_ACCESS : draw(16);
	if (percent(10))
		access = (unsigned)draw_number();
	size_t at_constant = (uintptr_t)addr - (uintptr_t)arena - constant_at;
	if (at_constant < CONSTANT)
		access &= ~(unsigned)IBV_ACCESS_LOCAL_WRITE;
	uint64_t iova = percent(20) ? draw_number() : draw64() >> 1;
	switch (draw(3)) {
	case 0:
		mrs[at] = POINTER((ibv_reg_mr)(pd, addr, len, (int)access));
		iova = access & IBV_ACCESS_ZERO_BASED ? 0 : (uintptr_t)addr;
		break;
	case 1:
		mrs[at] = POINTER((ibv_reg_mr_iova)(pd, addr, len, iova, (int)access));
		break;
	default:
		mrs[at] = POINTER(ibv_reg_mr_iova2(pd, addr, len, iova, access));
		iova = access & IBV_ACCESS_ZERO_BASED ? 0 : iova;
	}
	iovas[at] = iova;
	accesses[at] = access;
	EQ(mrs[at] && at_constant < CONSTANT + READ_ONLY && access & IBV_ACCESS_LOCAL_WRITE, 0);
	if (mrs[at])
		EQ(mrs[at]->length == len && mrs[at]->addr == addr && mrs[at]->pd == pd, 1);
}

static void make_queue(int at, struct ibv_context *context)
{
	int cqe = percent(90) ? 1 + (int)draw(300) : (int)draw_number();
	int vector = percent(95) ? 0 : (int)draw_number();
	struct ibv_cq *cq = POINTER(ibv_create_cq(context, cqe, &salt, NULL, vector));
	if (!cq)
		return;
	EQ(cq->cqe >= cqe && cqe > 0 && cq->context == context && cq->cq_context == &salt, 1);
	static struct queue *last;
	queues[at] = SOME(calloc(1, sizeof(*last)));
	*queues[at] = (struct queue){.cq = cq, .older = last};
	last = queues[at];
}

static void make_pair(int at, struct ibv_pd *pd, struct queue *send, struct queue *recv)
{
	struct ibv_qp_init_attr_ex *init = edge(FIRST, sizeof(*init));
	if (percent(20))
		draw_bytes(init, sizeof(*init));
	uint32_t caps[5];
	for (int n = 0; n < 5; n++)
		caps[n] = draw(n < 2 ? 40 : n < 4 ? 17 : 1025);
	if (percent(10))
		caps[draw(5)] = (uint32_t)draw_number();
	memcpy(&init->cap, caps, sizeof(caps));
	init->send_cq = percent(1) ? NULL : send->cq;
	init->recv_cq = percent(1) ? NULL : recv->cq;
	init->srq = NULL;
	init->qp_type = percent(95) ? IBV_QPT_RC : (enum ibv_qp_type)draw_number();
	init->sq_sig_all = percent(30) ? (int)draw_number() : 0;
	init->pd = percent(1) ? NULL : pd;
	init->comp_mask = percent(95) ? IBV_QP_INIT_ATTR_PD : (uint32_t)draw_number();
	struct ibv_qp_init_attr *plain = edge(SECOND, sizeof(*plain));
	memcpy(plain, init, sizeof(*plain));
	struct ibv_qp *qp = percent(50) ? POINTER(ibv_create_qp(init->pd, plain))
					: POINTER(ibv_create_qp_ex(pd->context, init));
	if (!qp)
		return;
	static struct pair *last;
	struct pair *pair = SOME(calloc(1, sizeof(*pair)));
	*pair = (struct pair){.older = last,
			      .qp = qp,
			      .send = send,
			      .recv = recv,
			      .cap = plain->cap,
			      .number = qp->qp_num,
			      .signals_all = plain->sq_sig_all != 0,
			      .reset_at = posted};
	last = pair;
	for (int n = 0; n < ROOM(pairs); n++)
		EQ(!pairs[n] || pairs[n]->number != pair->number, 1);
	pairs[at] = pair;
	EQ(attr_of(pair, IBV_QP_STATE).qp_state, IBV_QPS_RESET);
}

static void poll_some(struct queue *queue)
{
	for (uint32_t polls = 1 + draw(20); polls; polls--)
		poll_queue(queue, percent(95) ? (int)draw(65) : -(int)(draw_number() >> 33));
}

#define MAKE(table, call)             \
	do {                          \
		int at = FREE(table); \
		if (at >= 0)          \
			call;         \
	} while (0)
#define DESTROY(table, call)          \
	do {                          \
		int at = LIVE(table); \
		if (at >= 0)          \
			call;         \
	} while (0)

static void step(void)
{
	struct ibv_context *context = ANY(contexts);
	struct ibv_pd *pd = ANY(pds);
	struct queue *queue = ANY(queues), *second = ANY(queues);
	struct pair *pair = ANY(pairs), *peer = ANY(pairs);
	uint32_t kind = draw(1000);
	for (int tries = 0; tries < 4 && pair && pair->qp->state != IBV_QPS_RTS; tries++)
		pair = ANY(pairs);
	if (kind < 1)
		end_all();
	else if (kind < 20 || !context)
		MAKE(contexts, contexts[at] = open_device());
	else if (kind < 30)
		DESTROY(contexts, close_context(at));
	else if (kind < 60 || !pd)
		MAKE(pds, pds[at] = SOME(ibv_alloc_pd(context)));
	else if (kind < 80)
		DESTROY(pds, destroy_pd(at));
	else if (kind < 160)
		MAKE(mrs, make_mr(at, pd));
	else if (kind < 190)
		DESTROY(mrs, destroy_mr(at));
	else if (kind < 220 || !queue)
		MAKE(queues, make_queue(at, context));
	else if (kind < 235)
		DESTROY(queues, destroy_queue(at));
	else if (kind < 265 || !pair)
		MAKE(pairs, make_pair(at, pd, queue, second));
	else if (kind < 280)
		DESTROY(pairs, destroy_pair(at));
	else if (kind < 320)
		join(pair, peer);
	else if (kind < 390)
		modify(peer, pair);
	else if (kind < 550)
		post_sends(pair);
	else if (kind < 650)
		post_recvs(pair);
	else if (kind < 660)
		drain_pair(pair);
	else if (kind < 680)
		use_steady();
	else if (kind < 900)
		poll_some(queue);
	else
		other_call(context, pd, queue, pair);
}

static uint64_t setting(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);
	return text ? strtoull(text, NULL, 10) : otherwise;
}

static void run_seed(uint64_t seed, uint64_t steps)
{
	alarm(120);
	drawn = seed << 32;
	salt = draw64();
	make_arena();
	open_steady();
	for (seen->step = 0; seen->step < steps; seen->step++) {
		drawn = seed << 32 ^ seen->step << 8;
		step();
	}
	end_all();
	close_steady();
}

static void run_seeds(char **argv, int fd)
{
	uint64_t first = setting("SPANWIRE_TEST_SEED", 1);
	uint64_t seeds = setting("SPANWIRE_TEST_SEEDS", 30);
	uint64_t steps = setting("SPANWIRE_TEST_STEPS", 2000);
	int protection = PROT_READ | PROT_WRITE, flags = MAP_SHARED | MAP_ANONYMOUS;
	seen = mmap(NULL, sizeof(*seen), protection, flags, -1, 0);
	alarm(0);
	for (uint64_t seed = first; seed < first + seeds; seed++) {
		pid_t pid = fork();
		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			run_seed(seed, steps);
			exit(0);
		}
		int status;
		EQ(waitpid(pid, &status, 0), pid);
		if (status == 0)
			continue;
		typedef unsigned long long ull;
		FAIL("seed %llu, step %llu, status %#x: SPANWIRE_TEST_SEED=%llu "
		     "SPANWIRE_TEST_SEEDS=1 SPANWIRE_TEST_STEPS=%llu "
		     "cargo test -p spanwire-verbs --test calls random__%s",
		     (ull)seed, (ull)seen->step, status, (ull)seed, (ull)steps, argv[1]);
	}
	/* 3 % of the steps; a generator whose calls all fail would test little. */
	EQ(seen->succeeded >= seeds * steps / 300, 1);
}

int main(int argc, char **argv)
{
	struct test tests[] = {{"rc", run_seeds},
			       {"sr", run_seeds},
			       {"lossy", run_seeds},
			       {"lossy_sr", run_seeds}};
	return RUN(tests);
}
