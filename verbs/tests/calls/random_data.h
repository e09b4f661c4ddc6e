/* Steps of the random program with queue pairs: requests, and states. */
#ifndef CALLS_RANDOM_DATA_H
#define CALLS_RANDOM_DATA_H

#include "random.h"

/* Whether the requests of this call may be wrong, or should succeed if they can. */
static int wild;

/* The index of a region with these rights, or of any; -1 if there is none. */
static inline int region_with(struct ibv_pd *pd, unsigned access)
{
	int at = LIVE(mrs);
	for (int tries = 0; tries < 20 && at >= 0 && !wild; tries++, at = LIVE(mrs))
		if (mrs[at]->pd == pd && !(access & ~accesses[at]) && mrs[at]->length > 64)
			break;
	return at;
}

/* An element: mostly within a region, with the right key. */
static inline struct ibv_sge random_sge(struct pair *pair, uint32_t most)
{
	int at = region_with(pair->qp->pd, IBV_ACCESS_LOCAL_WRITE);
	if (at < 0)
		return (struct ibv_sge){draw_number(), (uint32_t)draw_number(), draw(UINT32_MAX)};
	uint64_t len = mrs[at]->length, offset = draw64() % len;
	offset = offset + 8 < len || wild ? offset : 0;
	struct ibv_sge sge = {.addr = iovas[at] + offset, .lkey = mrs[at]->lkey};
	most = len - offset < most ? (uint32_t)(len - offset) : most;
	sge.length = percent(20) ? 8 : draw(most + 1);
	if (wild && percent(4))
		sge.addr = draw_number();
	if (wild && percent(4))
		sge.length = (uint32_t)draw_number();
	if (wild && percent(4))
		sge.lkey = percent(50) ? draw(UINT32_MAX) : mrs[at]->lkey ^ 1u << draw(32);
	return sge;
}

/* Of inline data, which must be readable: of lengths beyond the memory nothing is read. */
static inline struct ibv_sge inline_sge(uint32_t most)
{
	size_t at = constant_at + draw(CONSTANT);
	uint32_t length = wild && percent(10) ? 1025 + (uint32_t)(draw_number() >> 33)
					      : draw(most / (wild ? 16 : 4) + 1);
	return (struct ibv_sge){(uintptr_t)arena + at, length, draw(UINT32_MAX)};
}

/* A length of a list of elements, or another number. */
static inline int random_count(uint32_t most)
{
	if (wild && percent(4))
		return percent(50) ? -(int)(1 + (draw_number() >> 33))
				   : 17 + (int)(draw_number() >> 34);
	return wild && percent(20) ? (int)draw(17) : (int)draw(most < 4 ? most + 1 : 4);
}

static inline uint64_t new_request(struct request request)
{
	static uint64_t room;
	if (posted == room) {
		room = room ? 2 * room : 1024;
		requests = SOME(realloc(requests, room * sizeof(*requests)));
	}
	requests[posted] = request;
	return posted++ ^ salt;
}

/* The requests before `refused` of the last `count` are posted. */
static inline void accepted(struct queue *queue, int count, int refused)
{
	for (int n = 0; n < refused; n++)
		requests[posted - (uint64_t)count + (uint64_t)n].accepted = 1;
	queue->open += (uint64_t)refused;
	if (queue->open > queue->most)
		queue->most = queue->open;
}

#define MOST 8

static inline void random_send(struct ibv_send_wr *wr, struct pair *pair, struct ibv_sge *sges)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,	 IBV_WR_SEND,
		IBV_WR_RDMA_READ,  IBV_WR_ATOMIC_CMP_AND_SWP,	 IBV_WR_SEND_WITH_IMM,
		IBV_WR_RDMA_WRITE, IBV_WR_ATOMIC_FETCH_AND_ADD};
	draw_bytes(wr, sizeof(*wr));
	wr->opcode = opcodes[draw(8)];
	if (wild && percent(10))
		wr->opcode = percent(50) ? IBV_WR_SEND_WITH_INV : (enum ibv_wr_opcode)draw_number();
	int is_atomic = wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
			wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
	int is_inline = (wild || (!is_atomic && wr->opcode != IBV_WR_RDMA_READ)) && percent(20);
	wr->send_flags = wild && percent(10) ? (unsigned)draw_number() : draw(8);
	wr->send_flags &= ~(unsigned)IBV_SEND_INLINE;
	wr->send_flags |= is_inline ? IBV_SEND_INLINE : 0;
	wr->num_sge = is_atomic && !wild ? 1 : random_count(pair->cap.max_send_sge);
	wr->sg_list = sges + 16 - (wr->num_sge >= 0 && wr->num_sge <= 16 ? wr->num_sge : 0);
	for (int n = 0; n < 16; n++)
		sges[n] = is_inline ? inline_sge(pair->cap.max_inline_data)
				    : random_sge(pair, percent(95) ? 400 : 20000);
	if (is_atomic && wr->num_sge == 1 && percent(95))
		wr->sg_list->length = 8;
	if (wild && percent(2))
		wr->sg_list = NULL;
	int at = region_with(pair->peer_pd, ALL_ACCESS);
	if (at >= 0 && (!wild || percent(80))) {
		uint32_t rkey = mrs[at]->rkey;
		uint64_t offset = (wild ? draw64() : draw(60)) % mrs[at]->length;
		uint64_t addr = iovas[at] + offset;
		if (is_atomic) {
			wr->wr.atomic.remote_addr = (addr + 7) & ~7ull;
			wr->wr.atomic.rkey = rkey;
		} else {
			wr->wr.rdma.remote_addr = addr;
			wr->wr.rdma.rkey = rkey;
		}
		if (wr->opcode == IBV_WR_SEND_WITH_INV)
			wr->invalidate_rkey = rkey;
	}
}

static inline void post_sends(struct pair *pair)
{
	wild = percent(10);
	int count = (int)draw(MOST + 1), before = (int)pair->qp->state;
	struct ibv_send_wr *wrs = edge(FIRST, (size_t)count * sizeof(*wrs)), *bad = &wrs[count];
	struct ibv_sge *sges = edge(SECOND, (size_t)count * 16 * sizeof(*sges));
	for (int n = 0; n < count; n++) {
		random_send(&wrs[n], pair, sges + 16 * n);
		int flagged = pair->signals_all || wrs[n].send_flags & IBV_SEND_SIGNALED;
		wrs[n].next = n + 1 < count ? &wrs[n + 1] : NULL;
		wrs[n].wr_id = new_request((struct request){
			.pair = pair, .must_complete = flagged, .opcode = (int)wrs[n].opcode});
	}
	int error = NUMBER(ibv_post_send(pair->qp, count ? wrs : NULL, &bad));
	EQ(error ? bad >= wrs && bad < wrs + count : bad == &wrs[count], 1);
	int refused = (int)(bad - wrs);
	for (int n = 0; n < refused; n++) {
		EQ(wrs[n].num_sge >= 0 && wrs[n].num_sge <= (int)pair->cap.max_send_sge, 1);
		EQ(wrs[n].opcode <= IBV_WR_ATOMIC_FETCH_AND_ADD ||
			   wrs[n].opcode == IBV_WR_SEND_WITH_INV,
		   1);
	}
	int after = (int)attr_of(pair, 0).qp_state;
	EQ(after == before || after == IBV_QPS_ERR, 1);
	EQ(!refused || after == IBV_QPS_RTS || after == IBV_QPS_SQD || after == IBV_QPS_ERR, 1);
	accepted(pair->send, count, refused);
}

static inline void post_recvs(struct pair *pair)
{
	wild = percent(10);
	int count = (int)draw(MOST + 1), before = (int)pair->qp->state;
	struct ibv_recv_wr *wrs = edge(FIRST, (size_t)count * sizeof(*wrs)), *bad = &wrs[count];
	struct ibv_sge *sges = edge(SECOND, (size_t)count * 16 * sizeof(*sges));
	for (int n = 0; n < count; n++) {
		struct ibv_recv_wr *wr = &wrs[n];
		struct request request = {.pair = pair, .is_recv = 1, .must_complete = 1};
		wr->num_sge = random_count(pair->cap.max_recv_sge);
		wr->sg_list = sges + 16 * n;
		for (int sge = 0; sge < 16; sge++)
			wr->sg_list[sge] = random_sge(pair, percent(80) ? 20000 : 400);
		for (int sge = 0; sge < wr->num_sge && sge < 16; sge++)
			request.bytes += wr->sg_list[sge].length;
		if (wild && percent(2))
			wr->sg_list = NULL;
		wr->next = n + 1 < count ? &wrs[n + 1] : NULL;
		wr->wr_id = new_request(request);
	}
	int error = NUMBER(ibv_post_recv(pair->qp, count ? wrs : NULL, &bad));
	EQ(error ? bad >= wrs && bad < wrs + count : bad == &wrs[count], 1);
	int refused = (int)(bad - wrs);
	for (int n = 0; n < refused; n++)
		EQ(wrs[n].num_sge >= 0 && wrs[n].num_sge <= (int)pair->cap.max_recv_sge, 1);
	EQ(!refused || before != IBV_QPS_RESET, 1);
	accepted(pair->recv, count, refused);
}

/* Attributes that are right for a transition to a state, or there is no such transition. */
static inline int right_attr(struct ibv_qp_attr *attr, enum ibv_qp_state from,
			     enum ibv_qp_state to, struct pair *peer)
{
	struct address address = {.qpn = peer->number, .psn = peer->number / 7};
	EQ(ibv_query_gid(peer->qp->context, 1, 0, &address.gid), 0);
	struct ibv_qp_attr init = attr_init(), rtr = attr_rtr(&address);
	init.qp_access_flags = percent(80) ? ALL_ACCESS : draw(16);
	rtr.path_mtu = IBV_MTU_256 + draw(5);
	rtr.min_rnr_timer = (uint8_t)(1 + draw(8));
	rtr.max_dest_rd_atomic = (uint8_t)draw(17);
	struct ibv_qp_attr rts = attr_rts(0, (uint8_t)draw(16), (uint8_t)draw(8));
	rts.rnr_retry = (uint8_t)draw(8);
	rts.max_rd_atomic = (uint8_t)draw(17);
	*attr = to == IBV_QPS_INIT ? init : to == IBV_QPS_RTR ? rtr : rts;
	attr->qp_state = to;
	if (from == IBV_QPS_RESET && to == IBV_QPS_INIT)
		return TO_INIT;
	if (from == IBV_QPS_INIT && to == IBV_QPS_RTR)
		return TO_RTR;
	return IBV_QP_STATE | (from == IBV_QPS_RTR && to == IBV_QPS_RTS ? TO_RTS : 0);
}

/* Modifies, and checks that state and attributes are the new ones, or that nothing has changed.
 * Queue pairs can fail at any time. */
#define TAKES(bit, field, most)                                                                 \
	do {                                                                                    \
		if (mask & (bit) && after.qp_state == to)                                       \
			EQ(after.field == wanted->field && (uint64_t)after.field <= (most), 1); \
	} while (0)

static inline void modify_checked(struct pair *pair, const struct ibv_qp_attr *wanted, int mask)
{
	struct ibv_qp_attr before = attr_of(pair, mask);
	struct ibv_qp_attr *attr = edge(FIRST, sizeof(*attr));
	*attr = *wanted;
	int error = NUMBER(ibv_modify_qp(pair->qp, attr, mask));
	enum ibv_qp_state shown = pair->qp->state;
	enum ibv_qp_state to = !error && mask & IBV_QP_STATE ? wanted->qp_state : before.qp_state;
	EQ(memcmp(attr, wanted, sizeof(*attr)), 0);
	struct ibv_qp_attr after = attr_of(pair, mask);
	EQ(shown == to || (!error && !(mask & IBV_QP_STATE) && shown == IBV_QPS_ERR), 1);
	EQ(after.qp_state == to || after.qp_state == IBV_QPS_ERR, 1);
	/* They advance with each packet. */
	before.rq_psn = after.rq_psn;
	before.sq_psn = after.sq_psn;
	if (error && after.qp_state == before.qp_state)
		EQ(memcmp(&after, &before, sizeof(after)), 0);
	if (!error && to == IBV_QPS_RESET)
		pair->reset_at = posted;
	if (error || to == IBV_QPS_RESET)
		return;
	TAKES(IBV_QP_TIMEOUT, timeout, 31);
	TAKES(IBV_QP_RETRY_CNT, retry_cnt, 7);
	TAKES(IBV_QP_RNR_RETRY, rnr_retry, 7);
	TAKES(IBV_QP_MIN_RNR_TIMER, min_rnr_timer, 31);
	TAKES(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic, 16);
	TAKES(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic, 16);
	TAKES(IBV_QP_DEST_QPN, dest_qp_num, 0xffffff);
	TAKES(IBV_QP_PATH_MTU, path_mtu, IBV_MTU_4096);
	TAKES(IBV_QP_PORT, port_num, 1);
	TAKES(IBV_QP_PKEY_INDEX, pkey_index, 0);
	TAKES(IBV_QP_AV, ah_attr.grh.dgid.global.interface_id, UINT64_MAX);
	if (mask & IBV_QP_ACCESS_FLAGS)
		EQ(after.qp_access_flags & 15, wanted->qp_access_flags & 15);
}

static inline void modify(struct pair *pair, struct pair *peer)
{
	/* One further, or anywhere. */
	static const enum ibv_qp_state next[] = {IBV_QPS_INIT, IBV_QPS_RTR,   IBV_QPS_RTS,
						 IBV_QPS_SQD,  IBV_QPS_RTS,   IBV_QPS_RESET,
						 IBV_QPS_RESET};
	enum ibv_qp_state from = pair->qp->state, to = percent(70) ? next[from] : draw(8);
	struct ibv_qp_attr attr;
	int mask = right_attr(&attr, from, to, peer);
	uint8_t *small[] = {&attr.max_rd_atomic, &attr.max_dest_rd_atomic, &attr.min_rnr_timer,
			    &attr.port_num,	 &attr.timeout,		   &attr.retry_cnt,
			    &attr.rnr_retry,	 &attr.ah_attr.port_num,   &attr.ah_attr.is_global};
	for (uint32_t changes = percent(50) ? 1 + draw(3) : 0; changes; changes--) {
		switch (draw(7)) {
		case 0:
			mask ^= (int)(1u << draw(22));
			break;
		case 1:
			mask = (int)draw_number();
			break;
		case 2: /* a host that is not there */
			draw_bytes(attr.ah_attr.grh.dgid.raw + 14, 2);
			attr.ah_attr.grh.dgid.raw[13] = 84;
			break;
		case 3:
			draw_bytes(&attr.ah_attr, sizeof(attr.ah_attr));
			break;
		case 4: /* one of the first fields, of 32 bits */
			((uint32_t *)&attr)[draw(9)] = (uint32_t)draw_number();
			break;
		case 5:
			draw_bytes((uint8_t *)&attr + draw(sizeof(attr)), 1);
			break;
		default:
			*small[draw(ROOM(small))] = (uint8_t)draw(percent(50) ? 40 : 256);
		}
	}
	modify_checked(pair, &attr, mask);
}

/* From any state to RTS, or not quite, connected with each other. */
static inline void join(struct pair *one, struct pair *other)
{
	static const enum ibv_qp_state states[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR,
						   IBV_QPS_RTS};
	struct pair *ends[] = {one, other};
	one->peer_pd = other->qp->pd;
	other->peer_pd = one->qp->pd;
	int last = percent(80) ? 3 : (int)draw(3);
	for (int state = 0; state <= last; state++)
		for (int n = 0; n < (one == other ? 1 : 2); n++) {
			struct ibv_qp_attr attr;
			int mask = right_attr(&attr, ends[n]->qp->state, states[state], ends[!n]);
			attr.path_mtu = IBV_MTU_1024;
			attr.sq_psn = ends[n]->number / 7;
			modify_checked(ends[n], &attr, mask);
			EQ(ends[n]->qp->state == states[state] ||
				   ends[n]->qp->state == IBV_QPS_ERR,
			   1);
			if (states[state] == IBV_QPS_INIT && percent(80))
				post_recvs(ends[n]);
		}
}

#endif
