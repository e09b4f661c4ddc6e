/* The bytes of a WRITE become visible in the order of their addresses, so that a program may poll
 * the last one. */
#include "common.h"

#define SLOTS 64
#define ROUNDS 8192

/* Never that of the slot's previous round. */
static uint8_t value_of(int round)
{
	return (uint8_t)(1 + (round / SLOTS + round * 7) % 255);
}

static void send_side(const struct node *node, struct ibv_qp *qp, const struct address *peer,
		      int fd, uint32_t size)
{
	for (int round = 0; round < ROUNDS; round += SLOTS) {
		for (int slot = 0; slot < SLOTS; slot++) {
			size_t at = (size_t)slot * 4096;
			memset(node->memory + at, value_of(round + slot), size);
			struct ibv_sge sge = {(uintptr_t)node->memory + at, size, node->mr->lkey};
			struct ibv_send_wr wr = {
				.sg_list = &sge,
				.num_sge = 1,
				.opcode = IBV_WR_RDMA_WRITE,
				.send_flags = slot + 1 == SLOTS ? IBV_SEND_SIGNALED : 0,
				.wr.rdma = {peer->memory + at, peer->rkey},
			}, *bad;
			EQ(ibv_post_send(qp, &wr, &bad), 0);
		}
		COMPLETES(node->cq, 0, IBV_WC_SUCCESS);
		meet(fd);
	}
}

/* Looks at memory only, so that a thread of the library writes it meanwhile. */
static void receive_side(const struct node *node, int fd, uint32_t size)
{
	for (int round = 0; round < ROUNDS; round++) {
		uint8_t *bytes = node->memory + (size_t)(round % SLOTS) * 4096;
		uint8_t value = value_of(round);
		double end = seconds() + 60;
		for (int looks = 1; __atomic_load_n(&bytes[size - 1], __ATOMIC_ACQUIRE) != value;
		     looks++) {
			if (looks % 256 == 0)
				sched_yield(); /* the other end may need this core */
			if (looks % 65536 == 0 && seconds() > end)
				FAIL("round %d has not arrived for 60 s", round);
		}
		for (uint32_t at = 0; at < size; at++)
			if (bytes[at] != value)
				FAIL("round %d of %u bytes: byte %u is %u when the last one is %u",
				     round, size, at, bytes[at], value);
		if (round % SLOTS == SLOTS - 1)
			meet(fd);
	}
}

static void last_byte(char **argv, int fd)
{
	int is_peer = fd >= 0;
	pid_t pid = 0;
	if (!is_peer)
		fd = start_peer(argv, &pid);
	struct node node = open_node(SLOTS * 4096);
	struct ibv_qp *qp = make_qp(&node);
	struct address peer = connect_over(fd, &node, qp, TIMEOUT, 7);
	EQ(ibv_query_qp_data_in_order(qp, IBV_WR_RDMA_WRITE, 0), 1);
	uint32_t sizes[] = {100, 256, 1024, 4096};
	for (int n = 0; n < 4; n++) {
		memset(node.memory, 0, node.size);
		meet(fd);
		if (is_peer)
			receive_side(&node, fd, sizes[n]);
		else
			send_side(&node, qp, &peer, fd, sizes[n]);
	}
	if (!is_peer)
		join_peer(pid);
	EQ(ibv_destroy_qp(qp), 0);
	close_node(&node);
}

/* SR does not promise it. */
static void sr(char **argv, int fd)
{
	struct node node = open_node(4096);
	struct ibv_qp *qp = make_qp(&node);
	EQ(ibv_query_qp_data_in_order(qp, IBV_WR_RDMA_WRITE, 0), 0);
	EQ(ibv_query_qp_data_in_order(qp, IBV_WR_SEND, 0), 0);
	EQ(ibv_destroy_qp(qp), 0);
	close_node(&node);
}

int main(int argc, char **argv)
{
	struct test tests[] = {{"last_byte", last_byte}, {"sr", sr}};
	return RUN(tests);
}
