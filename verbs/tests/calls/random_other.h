/* Steps of the random program that change nothing: queries, and calls that are not supported. */
#ifndef CALLS_RANDOM_OTHER_H
#define CALLS_RANDOM_OTHER_H

#include "random.h"

#include <dlfcn.h>
#include <stddef.h>

static inline void query_call(struct ibv_context *context)
{
	struct verbs_context *extended = verbs_get_ctx(context);
	uint8_t port = percent(60) ? 1 : (uint8_t)draw(256);
	int index = percent(60) ? 0 : (int)draw_number(), no_port = port == 1 ? 0 : EINVAL;
	size_t size = 8 * draw(80), entries = draw(4);
	uint32_t flags = percent(80) ? 0 : (uint32_t)draw_number();
	union ibv_gid *gid = edge(FIRST, sizeof(*gid));
	uint16_t *pkey = edge(SECOND, sizeof(*pkey));
	struct ibv_query_device_ex_input *input = edge(THIRD, sizeof(*input));
	size_t old_port = offsetof(struct ibv_port_attr, port_cap_flags2);
	struct ibv_device_attr *attr;
	struct ibv_gid_entry *entry;
	int (*query_port)(struct ibv_context *, uint8_t, void *) = (void *)(ibv_query_port);
	switch (draw(9)) {
	case 0:
		attr = edge(FIRST, sizeof(*attr));
		EQ(NUMBER(ibv_query_device(context, attr)), 0);
		break;
	case 1:
		size = percent(50) ? sizeof(struct ibv_device_attr_ex) : size;
		input->comp_mask = flags;
		NUMBER(extended->query_device_ex(context, percent(50) ? input : NULL,
						 edge(FIRST, size), size));
		break;
	case 2:
		EQ(NUMBER(query_port(context, port, edge(FIRST, old_port))), no_port);
		break;
	case 3:
		EQ(NUMBER(extended->query_port(context, port, edge(FIRST, size), size)), no_port);
		break;
	case 4:
		EQ(MINUS_ONE(ibv_query_gid(context, port, index, gid)), -(index || no_port));
		break;
	case 5:
		EQ(MINUS_ONE(ibv_query_pkey(context, port, index, pkey)), -(index || no_port));
		MINUS_ONE(ibv_get_pkey_index(context, port, (uint16_t)draw(65536)));
		break;
	case 6:
		entry = edge(FIRST, size);
		NUMBER(_ibv_query_gid_ex(context, port, (uint32_t)index, entry, flags, size));
		break;
	case 7:
		entry = edge(FIRST, entries * size);
		ssize_t found = _ibv_query_gid_table(context, entry, entries, flags, size);
		EQ(found <= (ssize_t)entries, 1);
		break;
	default:
		EQ(strlen(SOME(ibv_wc_status_str((enum ibv_wc_status)index))) > 0, 1);
		EQ(strlen(SOME(ibv_node_type_str((enum ibv_node_type)index))) > 0, 1);
		EQ(strlen(SOME(ibv_port_state_str((enum ibv_port_state)index))) > 0, 1);
		EQ(strlen(SOME(ibv_event_type_str((enum ibv_event_type)index))) > 0, 1);
		EQ(ibv_rate_to_mult(mult_to_ibv_rate(index)) == -1 ||
			   ibv_rate_to_mult(mult_to_ibv_rate(index)) == index,
		   1);
		EQ(ibv_rate_to_mbps(mbps_to_ibv_rate(index)) == -1 ||
			   ibv_rate_to_mbps(mbps_to_ibv_rate(index)) == index,
		   1);
	}
}

#define UNSUPPORTED(call) EQ(call, EOPNOTSUPP)
#define NONE(call) NULL_WITH(call, EOPNOTSUPP)

/* Calls that are not supported, with structures of any values. */
static inline void unsupported_call(struct ibv_context *context, struct ibv_pd *pd,
				    struct queue *queue, struct pair *pair)
{
	struct ibv_recv_wr *bad_recv, recv = {};
	void *any = edge(FIRST, 512);
	draw_bytes(any, 512);
	int number = (int)draw_number();
	UNSUPPORTED(NUMBER(ibv_resize_cq(queue->cq, number)));
	NONE(ibv_create_ah(pd, any));
	NONE(ibv_create_ah_from_wc(pd, any, any, (uint8_t)number));
	NONE(ibv_create_srq(pd, any));
	NONE(ibv_create_comp_channel(context));
	NONE(ibv_alloc_mw(pd, (enum ibv_mw_type)number));
	NONE(ibv_alloc_td(context, any));
	NONE(ibv_alloc_dm(context, any));
	NONE(ibv_alloc_null_mr(pd));
	NONE(ibv_alloc_parent_domain(context, any));
	NONE(ibv_open_xrcd(context, any));
	NONE(ibv_create_srq_ex(context, any));
	NONE(ibv_create_wq(context, any));
	NONE(ibv_create_rwq_ind_table(context, any));
	NONE(ibv_create_counters(context, any));
	NONE(ibv_create_flow(pair->qp, any));
	NONE(ibv_open_qp(context, any));
	NONE(ibv_qp_to_qp_ex(pair->qp));
	UNSUPPORTED(ibv_modify_cq(queue->cq, any));
	UNSUPPORTED(ibv_modify_qp_rate_limit(pair->qp, any));
	UNSUPPORTED(ibv_query_rt_values_ex(context, any));
	UNSUPPORTED(ibv_advise_mr(pd, (enum ibv_advise_mr_advice)number, 0, any, 4));
	UNSUPPORTED(NUMBER(ibv_attach_mcast(pair->qp, any, (uint16_t)number)));
	UNSUPPORTED(NUMBER(ibv_detach_mcast(pair->qp, any, (uint16_t)number)));
	UNSUPPORTED(NUMBER(ibv_set_ece(pair->qp, any)));
	UNSUPPORTED(NUMBER(ibv_query_ece(pair->qp, any)));
	UNSUPPORTED(NUMBER(context->ops.post_srq_recv(NULL, &recv, &bad_recv)));
	EQ(bad_recv == &recv, 1);
	EQ(MINUS_ONE(ibv_get_async_event(context, any)), -1);
	struct ibv_cq_init_attr_ex *init = any;
	init->cqe = 16; /* the header looks at the mask before the call */
	init->comp_mask = percent(50) ? 0 : init->comp_mask;
	EQ(POINTER(ibv_create_cq_ex(context, init)) == NULL, 1);
	UNSUPPORTED(NUMBER(pd->context->ops.post_srq_recv(NULL, NULL, NULL)));
	int mr = LIVE(mrs);
	if (mr >= 0)
		EQ(ibv_rereg_mr(mrs[mr], number, pd, any, 512, number), -1);
}

/* Buffers of the library, which the header may not have yet. */
static inline void buffer_call(struct ibv_pd *pd, struct ibv_pd *other)
{
	void *(*alloc)(struct ibv_pd *, size_t, void **) = dlsym(RTLD_DEFAULT, "ibv_alloc_buf");
	void (*release)(void *) = dlsym(RTLD_DEFAULT, "ibv_free_buf");
	struct ibv_mr *(*reg)(struct ibv_pd *, void *, void *, size_t, int) =
		dlsym(RTLD_DEFAULT, "ibv_reg_buf_mr");
	void *buffer = NULL;
	size_t size = draw(3 * PAGE);
	if (percent(20) && !getenv("SPANWIRE_TEST_ASAN")) /* which says that it is too much */
		size = SIZE_MAX - size;
	uint8_t *base = POINTER(alloc(percent(95) ? pd : NULL, size, &buffer));
	if (!base)
		return;
	struct ibv_mr *mr = POINTER(reg(other, percent(90) ? buffer : NULL, base + draw(64),
					percent(80) ? size : draw_number(), (int)draw(16)));
	if (mr)
		EQ(NUMBER(ibv_dereg_mr(mr)), 0);
	release(buffer);
}

static inline void other_call(struct ibv_context *context, struct ibv_pd *pd, struct queue *queue,
			      struct pair *pair)
{
	uint32_t kind = draw(10);
	if (kind < 5)
		query_call(context);
	else if (kind < 7)
		unsupported_call(context, pd, queue, pair);
	else if (kind < 8)
		buffer_call(pd, ANY(pds));
	else if (kind < 9)
		EQ(NUMBER(ibv_req_notify_cq(queue->cq, (int)draw_number())), 0);
	else
		EQ(ibv_query_qp_data_in_order(pair->qp, draw(9), draw(2)) >> 1, 0);
}

#endif
