/* The port, and objects that are in use or outlive their context. */
#include "common.h"

#include <sys/resource.h>

/* A plain socket at UDP port 4791 of the address of this process; -1 with errno. */
static int take_port(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(4791)};
	address.sin_addr.s_addr = inet_addr(getenv("SPANWIRE_ADDR"));
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	EQ(fd >= 0, 1);
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		return fd;
	int error = errno;
	close(fd);
	errno = error;
	return -1;
}

static void send_to_itself(struct node *node, struct ibv_qp *qp)
{
	struct ibv_sge sge = {(uintptr_t)node->memory, 4096, node->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 1,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.rdma = {(uintptr_t)node->memory + 4096, node->mr->rkey}}, *bad;
	node->memory[0] ^= 0xff;
	EQ(ibv_post_send(qp, &wr, &bad), 0);
	COMPLETES(node->cq, 1, IBV_WC_SUCCESS);
	EQ(memcmp(node->memory, node->memory + 4096, 4096), 0);
}

/* The address has the port; stderr is checked by the test. */
static void port(char **argv, int fd)
{
	int taken = take_port();
	EQ(taken >= 0, 1);
	struct node node = open_node(8192);
	struct ibv_qp_init_attr init = init_of(&node);
	NULL_WITH(ibv_create_qp(node.pd, &init), EADDRINUSE);
	close(taken);
	struct ibv_qp *qp = make_qp(&node);
	EQ(take_port(), -1);
	EQ(errno, EADDRINUSE);
	struct address own = address_of(&node, qp);
	connect_qp(qp, &own, own.psn, TIMEOUT, 7);
	send_to_itself(&node, qp);

	/* It stays open for further queue pairs, and closes with the last object. */
	EQ(ibv_destroy_qp(qp), 0);
	EQ(take_port(), -1);
	close_node(&node);
	taken = take_port();
	EQ(taken >= 0, 1);
	close(taken);
}

static void busy(char **argv, int fd)
{
	struct node node = open_node(8192);
	struct ibv_context *other = open_only_device();
	EQ(ibv_dealloc_pd(SOME(ibv_alloc_pd(other))), 0);
	ERROR_OF(ibv_dealloc_pd(node.pd), EBUSY);
	struct ibv_qp_init_attr init = init_of(&node);
	struct ibv_cq *recv_cq = init.recv_cq = SOME(ibv_create_cq(node.context, 1, NULL, NULL, 0));
	struct ibv_qp *qp = SOME(ibv_create_qp(node.pd, &init));
	ERROR_OF(ibv_destroy_cq(node.cq), EBUSY);
	ERROR_OF(ibv_destroy_cq(recv_cq), EBUSY);
	EQ(ibv_dereg_mr(node.mr), 0);
	ERROR_OF(ibv_dealloc_pd(node.pd), EBUSY);
	EQ(ibv_destroy_qp(qp), 0);
	EQ(ibv_destroy_cq(recv_cq), 0);
	EQ(ibv_destroy_cq(node.cq), 0);
	EQ(ibv_dealloc_pd(node.pd), 0);
	EQ(ibv_close_device(node.context), 0);
	EQ(ibv_close_device(other), 0);
}

/* A context is closed before its objects: they stay valid, because programs that are about to end
 * destroy them in any order. */
static void close_early(char **argv, int fd)
{
	for (int round = 0; round < 3; round++) {
		struct node node = open_node(8192);
		struct ibv_qp *qp = make_qp(&node);
		struct address own = address_of(&node, qp);
		connect_qp(qp, &own, own.psn, TIMEOUT, 7);
		EQ(ibv_close_device(node.context), 0);
		EQ(take_port(), -1);
		/* The same engine as before. */
		node.context = open_only_device();
		struct ibv_pd *pd = SOME(ibv_alloc_pd(node.context));
		EQ(ibv_dealloc_pd(pd), 0);
		EQ(ibv_destroy_qp(qp), 0);
		EQ(ibv_close_device(node.context), 0);
		EQ(ibv_dereg_mr(node.mr), 0);
		EQ(ibv_destroy_cq(node.cq), 0);
		EQ(ibv_dealloc_pd(node.pd), 0);
		int taken = take_port();
		EQ(taken >= 0, 1);
		close(taken);
	}

	/* The program ends with everything open. */
	struct node node = open_node(8192);
	struct ibv_qp *qp = make_qp(&node);
	struct address own = address_of(&node, qp);
	connect_qp(qp, &own, own.psn, TIMEOUT, 7);
	send_to_itself(&node, qp);
	EQ(ibv_close_device(node.context), 0);
}

/* A process may run out of files anywhere in the call; later ones work once there are more. */
static void few_files(char **argv, int fd)
{
	struct node node = open_node(8192);
	struct rlimit limit, few;
	EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
	struct ibv_qp_init_attr init = init_of(&node);
	struct ibv_qp *qp = NULL;
	int refused = 0;
	for (few = limit, few.rlim_cur = 3; !qp && few.rlim_cur < 40; few.rlim_cur++) {
		EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
		errno = 0;
		qp = ibv_create_qp(node.pd, &init);
		if (!qp) {
			EQ(errno, EMFILE);
			struct ibv_pd *pd = SOME(ibv_alloc_pd(node.context));
			EQ(ibv_dealloc_pd(pd), 0);
			refused++;
		}
	}
	EQ(qp && refused > 2, 1);
	EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
	struct address own = address_of(&node, qp);
	connect_qp(qp, &own, own.psn, TIMEOUT, 7);
	send_to_itself(&node, qp);
	EQ(ibv_destroy_qp(qp), 0);
	close_node(&node);
}

int main(int argc, char **argv)
{
	struct test tests[] = {{"port", port},
			       {"busy", busy},
			       {"close_early", close_early},
			       {"few_files", few_files}};
	return RUN(tests);
}
