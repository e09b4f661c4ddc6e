/* Wrong arguments of ibv_modify_qp: each is EINVAL, and the state stays as it is. */
#include "common.h"

static struct node node;
static struct ibv_qp *qp;

/* The call must fail, and leave the state. */
#define REFUSED(attr, mask, expected)                                     \
	do {                                                              \
		enum ibv_qp_state before = state_of(qp);                  \
		ERROR_OF(ibv_modify_qp(qp, attr, mask), expected);        \
		EQ(state_of(qp), before);                                 \
	} while (0)

/* One field with a wrong value. */
#define WRONG(base, field, value, mask)                                   \
	do {                                                              \
		struct ibv_qp_attr wrong = base;                          \
		wrong.field = value;                                      \
		REFUSED(&wrong, mask, EINVAL);                            \
	} while (0)

/* Each bit that is missing, and each that is foreign. */
static void bits(struct ibv_qp_attr attr, int required, int optional)
{
	for (unsigned n = 1; n < 32; n++) {
		int bit = (int)(1u << n);
		if (required & bit)
			REFUSED(&attr, required & ~bit, EINVAL);
		else if (!(optional & bit))
			REFUSED(&attr, required | bit, EINVAL);
	}
	if (required != IBV_QP_STATE)
		REFUSED(&attr, required & ~IBV_QP_STATE, EINVAL);
	if (optional & IBV_QP_ALT_PATH)
		REFUSED(&attr, required | IBV_QP_ALT_PATH, EOPNOTSUPP);
	for (int state = IBV_QPS_RESET; state <= IBV_QPS_ERR; state++) {
		struct ibv_qp_attr wrong = attr;
		wrong.cur_qp_state = state;
		if (state != (int)state_of(qp))
			REFUSED(&wrong, required | IBV_QP_CUR_STATE, EINVAL);
	}
}

static void init(void)
{
	struct ibv_qp_attr attr = attr_init();
	bits(attr, TO_INIT, IBV_QP_CUR_STATE);
	WRONG(attr, pkey_index, 1, TO_INIT);
	WRONG(attr, port_num, 0, TO_INIT);
	WRONG(attr, port_num, 2, TO_INIT);
	WRONG(attr, qp_access_flags, 1 << 8, TO_INIT);
	WRONG(attr, qp_state, IBV_QPS_RTR, TO_INIT);
	WRONG(attr, qp_state, IBV_QPS_SQE, TO_INIT);
	WRONG(attr, qp_state, IBV_QPS_UNKNOWN, TO_INIT);
	WRONG(attr, qp_state, -1, TO_INIT);
	attr.cur_qp_state = IBV_QPS_RESET;
	EQ(ibv_modify_qp(qp, &attr, TO_INIT | IBV_QP_CUR_STATE), 0);
	EQ(state_of(qp), IBV_QPS_INIT);
}

static void rtr(const struct address *peer)
{
	struct ibv_qp_attr attr = attr_rtr(peer);
	attr.qp_access_flags = ALL_ACCESS;
	int optional = IBV_QP_CUR_STATE | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH;
	bits(attr, TO_RTR, optional);
	WRONG(attr, pkey_index, 1, TO_RTR | IBV_QP_PKEY_INDEX);
	struct ibv_port_attr port;
	EQ(ibv_query_port(node.context, 1, &port), 0);
	if (port.active_mtu < IBV_MTU_4096)
		WRONG(attr, path_mtu, port.active_mtu + 1, TO_RTR);
	WRONG(attr, path_mtu, 0, TO_RTR);
	WRONG(attr, path_mtu, IBV_MTU_4096 + 1, TO_RTR);
	WRONG(attr, ah_attr.is_global, 0, TO_RTR);
	WRONG(attr, ah_attr.port_num, 2, TO_RTR);
	WRONG(attr, ah_attr.grh.sgid_index, 1, TO_RTR);
	WRONG(attr, ah_attr.grh.dgid.raw[0], 0xfe, TO_RTR);
	WRONG(attr, ah_attr.grh.dgid.raw[10], 0, TO_RTR);
	uint8_t not_one_host[][4] = {{0}, {255, 255, 255, 255}, {224, 0, 0, 1}};
	for (int n = 0; n < 3; n++) {
		struct ibv_qp_attr wrong = attr;
		memcpy(wrong.ah_attr.grh.dgid.raw + 12, not_one_host[n], 4);
		REFUSED(&wrong, TO_RTR, EINVAL);
	}
	WRONG(attr, dest_qp_num, 0, TO_RTR);
	WRONG(attr, dest_qp_num, 1 << 24, TO_RTR);
	WRONG(attr, max_dest_rd_atomic, 17, TO_RTR);
	WRONG(attr, min_rnr_timer, 32, TO_RTR);
	WRONG(attr, qp_state, IBV_QPS_RTS, TO_RTR);
	attr.rq_psn |= 0xff000000; /* drivers ignore the upper bits */
	EQ(ibv_modify_qp(qp, &attr, TO_RTR | IBV_QP_ACCESS_FLAGS), 0);
	EQ(state_of(qp), IBV_QPS_RTR);
}

static void rts(void)
{
	struct ibv_qp_attr attr = attr_rts(0, TIMEOUT, 7);
	int optional = IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER |
		       IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE;
	bits(attr, TO_RTS, optional);
	WRONG(attr, timeout, 32, TO_RTS);
	WRONG(attr, retry_cnt, 8, TO_RTS);
	WRONG(attr, rnr_retry, 8, TO_RTS);
	WRONG(attr, max_rd_atomic, 17, TO_RTS);
	WRONG(attr, min_rnr_timer, 32, TO_RTS | IBV_QP_MIN_RNR_TIMER);
	EQ(ibv_modify_qp(qp, &attr, TO_RTS), 0);
	EQ(state_of(qp), IBV_QPS_RTS);
}

/* What a query returns is what was set. */
static void check(const struct address *peer)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	EQ(ibv_query_qp(qp, &attr, 0, &init), 0);
	EQ(attr.cur_qp_state, IBV_QPS_RTS);
	EQ(attr.path_mtu, IBV_MTU_4096);
	EQ(attr.dest_qp_num, peer->qpn);
	EQ(attr.rq_psn, peer->psn);
	EQ(attr.sq_psn, 0);
	EQ(attr.qp_access_flags, ALL_ACCESS);
	EQ(attr.cap.max_send_wr, 64);
	EQ(attr.cap.max_inline_data, 256);
	EQ(memcmp(&attr.ah_attr.grh.dgid, &peer->gid, 16), 0);
	EQ(attr.ah_attr.is_global, 1);
	EQ(attr.max_rd_atomic, 16);
	EQ(attr.max_dest_rd_atomic, 16);
	EQ(attr.min_rnr_timer, 1);
	EQ(attr.timeout, TIMEOUT);
	EQ(attr.retry_cnt, 7);
	EQ(attr.rnr_retry, 7);
	EQ(attr.port_num, 1);
	EQ(init.send_cq == node.cq && init.recv_cq == node.cq, 1);
	EQ(init.cap.max_recv_sge, 4);
	EQ(init.qp_type, IBV_QPT_RC);
	EQ(init.sq_sig_all, 0);
}

static void modify(char **argv, int fd)
{
	node = open_node(4096);
	qp = make_qp(&node);
	struct address own = address_of(&node, qp);
	init();
	rtr(&own);
	rts();
	check(&own);

	/* To ERR and RESET from anywhere, with nothing else; and once more through all states. */
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	bits(attr, IBV_QP_STATE, IBV_QP_CUR_STATE);
	EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
	EQ(state_of(qp), IBV_QPS_ERR);
	attr = attr_rts(0, TIMEOUT, 7);
	REFUSED(&attr, TO_RTS, EINVAL);
	attr.qp_state = IBV_QPS_RESET;
	EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
	EQ(state_of(qp), IBV_QPS_RESET);
	connect_qp(qp, &own, own.psn, TIMEOUT, 7);
	EQ(state_of(qp), IBV_QPS_RTS);

	/* It is its own peer. */
	struct ibv_send_wr wr = {
		.wr_id = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
	struct ibv_recv_wr recv = {.wr_id = 2}, *bad_recv;
	EQ(ibv_post_recv(qp, &recv, &bad_recv), 0);
	EQ(ibv_post_send(qp, &wr, &bad), 0);
	struct ibv_wc first = next_wc(node.cq), second = next_wc(node.cq);
	EQ(first.status, IBV_WC_SUCCESS);
	EQ(second.status, IBV_WC_SUCCESS);
	EQ(first.wr_id + second.wr_id, 3);

	/* RESET removes what was not polled: in ERR, each request is flushed at once. */
	EQ(ibv_post_recv(qp, &recv, &bad_recv), 0);
	attr.qp_state = IBV_QPS_ERR;
	EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
	EQ(ibv_post_send(qp, &wr, &bad), 0);
	attr.qp_state = IBV_QPS_RESET;
	EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
	EQ(ibv_poll_cq(node.cq, 1, &first), 0);
	EQ(ibv_destroy_qp(qp), 0);
	close_node(&node);
}

/* A peer to which no route leads; what the library says is checked by the test. */
static void unroutable(char **argv, int fd)
{
	node = open_node(4096);
	qp = make_qp(&node);
	struct address peer = address_of(&node, qp);
	struct ibv_qp_attr attr = attr_init();
	EQ(ibv_modify_qp(qp, &attr, TO_INIT), 0);
	memcpy(peer.gid.raw + 12, (uint8_t[]){192, 0, 2, 1}, 4);
	attr = attr_rtr(&peer);
	int error = ibv_modify_qp(qp, &attr, TO_RTR);
	/* EINVAL where there is a default route: an address of the loopback may not leave. */
	EQ(error == ENETUNREACH || error == EHOSTUNREACH || error == EINVAL, 1);
	EQ(state_of(qp), IBV_QPS_INIT);
	EQ(ibv_destroy_qp(qp), 0);
	close_node(&node);
}

int main(int argc, char **argv)
{
	struct test tests[] = {{"modify", modify}, {"unroutable", unroutable}};
	return RUN(tests);
}
