/* Another process that deregisters, dies or is forked. */
#include "common.h"

static struct ibv_send_wr write_to(const struct node *node, struct ibv_sge *sge,
				   const struct address *peer)
{
	*sge = (struct ibv_sge){(uintptr_t)node->memory, 64, node->mr->lkey};
	return (struct ibv_send_wr){
		.wr_id = 1,
		.sg_list = sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {peer->memory, peer->rkey},
	};
}

/* The peer deregisters its memory between two WRITEs. */
static void dereg(char **argv, int fd)
{
	int is_peer = fd >= 0;
	pid_t pid = 0;
	if (!is_peer)
		fd = start_peer(argv, &pid);
	struct node node = open_node(4096);
	struct ibv_qp *qp = make_qp(&node);
	struct address peer = connect_over(fd, &node, qp, TIMEOUT, 7);
	if (is_peer) {
		meet(fd);
		EQ(node.memory[63], 7);
		EQ(ibv_dereg_mr(node.mr), 0);
		EQ(munmap(node.memory, 4096), 0); /* an access would crash */
		meet(fd);
		meet(fd);
		EQ(state_of(qp), IBV_QPS_ERR);
		return;
	}
	struct ibv_sge sge;
	struct ibv_send_wr wr = write_to(&node, &sge, &peer), *bad;
	memset(node.memory, 7, 64);
	EQ(ibv_post_send(qp, &wr, &bad), 0);
	COMPLETES(node.cq, 1, IBV_WC_SUCCESS);
	meet(fd);
	meet(fd);
	struct ibv_send_wr behind = wr;
	wr.next = &behind;
	behind.wr_id = 2;
	EQ(ibv_post_send(qp, &wr, &bad), 0);
	COMPLETES(node.cq, 1, IBV_WC_REM_ACCESS_ERR);
	COMPLETES(node.cq, 2, IBV_WC_WR_FLUSH_ERR);
	EQ(state_of(qp), IBV_QPS_ERR);
	meet(fd);
	join_peer(pid);
	EQ(ibv_destroy_qp(qp), 0);
	close_node(&node);
}

/* Deregisters and unmaps memory that is in use: an access after that would crash. */
static void unmap(struct node *node)
{
	EQ(ibv_dereg_mr(node->mr), 0);
	EQ(munmap(node->memory, node->size), 0);
}

/* One end deregisters while messages of 256 KiB are under way: at first the peer of WRITEs, then
 * that of READs, then the requester of each. */
static void dereg_busy(char **argv, int fd)
{
	int is_peer = fd >= 0;
	pid_t pid = 0;
	if (!is_peer)
		fd = start_peer(argv, &pid);
	for (int round = 0; round < 40; round++) {
		struct node node = open_node(1 << 18);
		struct ibv_qp *qp = make_qp(&node);
		struct address peer = connect_over(fd, &node, qp, TIMEOUT, 7);
		int is_requesters = round & 2;
		struct ibv_sge sge;
		struct ibv_send_wr wr = write_to(&node, &sge, &peer), *bad;
		wr.opcode = round & 1 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
		sge.length = 1 << 18;
		struct ibv_wc wc = {.status = IBV_WC_SUCCESS};
		if (is_peer) {
			usleep((useconds_t)round * 50);
			if (!is_requesters)
				unmap(&node);
			meet(fd);
		} else {
			for (int n = 0; n < 32; n++)
				EQ(ibv_post_send(qp, &wr, &bad), 0);
			usleep((useconds_t)round * 10);
			if (is_requesters)
				unmap(&node);
			for (int n = 0; n < 32 && wc.status == IBV_WC_SUCCESS; n++)
				wc = next_wc(node.cq);
			meet(fd);
			if (!is_requesters && wc.status == IBV_WC_SUCCESS) {
				EQ(ibv_post_send(qp, &wr, &bad), 0);
				wc = next_wc(node.cq);
			}
		}
		if (!is_peer && wc.status != IBV_WC_SUCCESS)
			EQ(wc.status, is_requesters ? IBV_WC_LOC_PROT_ERR : IBV_WC_REM_ACCESS_ERR);
		meet(fd);
		EQ(ibv_destroy_qp(qp), 0);
		if (is_requesters ? is_peer : !is_peer)
			EQ(ibv_dereg_mr(node.mr), 0);
		EQ(ibv_destroy_cq(node.cq), 0);
		EQ(ibv_dealloc_pd(node.pd), 0);
		EQ(ibv_close_device(node.context), 0);
	}
	if (!is_peer)
		join_peer(pid);
}

/* The peer is killed: 4.2 ms, and three times more. */
static void killed(char **argv, int fd)
{
	int is_peer = fd >= 0;
	pid_t pid = 0;
	if (!is_peer)
		fd = start_peer(argv, &pid);
	struct node node = open_node(4096);
	struct ibv_qp *qp = make_qp(&node);
	struct address peer = connect_over(fd, &node, qp, 10, 3);
	if (is_peer)
		pause();
	EQ(kill(pid, SIGKILL), 0);
	int status;
	EQ(waitpid(pid, &status, 0), pid);
	struct ibv_sge sge;
	struct ibv_send_wr wr = write_to(&node, &sge, &peer), *bad;
	double start = seconds();
	EQ(ibv_post_send(qp, &wr, &bad), 0);
	COMPLETES(node.cq, 1, IBV_WC_RETRY_EXC_ERR);
	double took = seconds() - start, least = 4 * 4.096e-6 * 1024;
	if (took < least)
		FAIL("given up after %f s, expected at least %f s", took, least);
	EQ(state_of(qp), IBV_QPS_ERR);
	EQ(ibv_destroy_qp(qp), 0);
	close_node(&node);
}

/* In a forked process the calls fail, and whatever it does is nothing to the parent. */
static void in_child(struct node *node, struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad = NULL;
	ERROR_OF(ibv_post_send(qp, wr, &bad), EIO);
	EQ(bad == wr, 1);
	struct ibv_recv_wr recv = {.wr_id = 9}, *bad_recv;
	ERROR_OF(ibv_post_recv(qp, &recv, &bad_recv), EIO);
	struct ibv_wc wc;
	errno = 0;
	EQ(ibv_poll_cq(node->cq, 1, &wc), -EIO);
	EQ(errno, EIO);
	NULL_WITH(ibv_alloc_pd(node->context), EIO);
	NULL_WITH(ibv_create_cq(node->context, 16, NULL, NULL, 0), EIO);
	NULL_WITH(ibv_reg_mr(node->pd, node->memory, 64, 0), EIO);
	struct ibv_qp_init_attr init = init_of(node);
	NULL_WITH(ibv_create_qp(node->pd, &init), EIO);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	ERROR_OF(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EIO);
	ERROR_OF(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), EIO);
	ERROR_OF(ibv_dereg_mr(node->mr), EIO);
	ERROR_OF(ibv_destroy_cq(node->cq), EIO);
	ERROR_OF(ibv_dealloc_pd(node->pd), EIO);
	ibv_destroy_qp(qp);
	ibv_close_device(node->context);
	exit(0);
}

static void forked(char **argv, int fd)
{
	int is_peer = fd >= 0;
	pid_t pid = 0;
	if (!is_peer)
		fd = start_peer(argv, &pid);
	struct node node = open_node(4096);
	/* Before the first queue pair there is no port. */
	if (!is_peer) {
		pid_t child = fork();
		if (child == 0) {
			NULL_WITH(ibv_alloc_pd(node.context), EIO);
			struct ibv_qp_init_attr init = init_of(&node);
			NULL_WITH(ibv_create_qp(node.pd, &init), EIO);
			exit(0);
		}
		join_peer(child);
	}
	struct ibv_qp *qp = make_qp(&node);
	struct address peer = connect_over(fd, &node, qp, TIMEOUT, 7);
	struct ibv_sge sge;
	struct ibv_send_wr wr = write_to(&node, &sge, &peer), *bad;
	for (uint8_t round = 1; round < 8 && !is_peer; round++) {
		memset(node.memory, round, 64);
		EQ(ibv_post_send(qp, &wr, &bad), 0);
		pid_t child = fork(); /* with a request outstanding */
		if (child == 0)
			in_child(&node, qp, &wr);
		COMPLETES(node.cq, 1, IBV_WC_SUCCESS);
		join_peer(child);
		EQ(ibv_post_send(qp, &wr, &bad), 0);
		COMPLETES(node.cq, 1, IBV_WC_SUCCESS);
	}
	meet(fd);
	if (is_peer)
		EQ(node.memory[63], 7);
	else
		join_peer(pid);
	EQ(ibv_destroy_qp(qp), 0);
	close_node(&node);
}

int main(int argc, char **argv)
{
	struct test tests[] = {{"dereg", dereg},
			       {"dereg_busy", dereg_busy},
			       {"killed", killed},
			       {"forked", forked}};
	return RUN(tests);
}
