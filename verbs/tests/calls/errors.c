/* Wrong arguments of the calls that make objects. */
#include "common.h"

#include <limits.h>

static void memory(char **argv, int fd)
{
	struct node node = open_node(4096);
	struct ibv_pd *pd = node.pd;
	uint8_t *three = pages(3 * 4096);
	EQ(munmap(three + 4096, 4096), 0);
	int rw = IBV_ACCESS_LOCAL_WRITE, ro = IBV_ACCESS_REMOTE_READ;

	/* A hole: before, in, behind the memory. */
	NULL_WITH(ibv_reg_mr(pd, three, 3 * 4096, rw), EFAULT);
	NULL_WITH(ibv_reg_mr(pd, three, 3 * 4096, ro), EFAULT);
	NULL_WITH(ibv_reg_mr(pd, three + 4095, 2, rw), EFAULT);
	NULL_WITH(ibv_reg_mr(pd, three + 4096, 1, 0), EFAULT);
	NULL_WITH(ibv_reg_mr(pd, three + 2 * 4096 - 1, 2, rw), EFAULT);
	EQ(ibv_dereg_mr(SOME(ibv_reg_mr(pd, three, 4096, rw))), 0);

	/* Read-only and inaccessible pages. */
	three[0] = 77;
	EQ(mprotect(three, 4096, PROT_READ), 0);
	NULL_WITH(ibv_reg_mr(pd, three, 4096, rw), EFAULT);
	EQ(ibv_dereg_mr(SOME(ibv_reg_mr(pd, three, 4096, 0))), 0);
	EQ(ibv_dereg_mr(SOME(ibv_reg_mr(pd, three, 4096, ro))), 0);
	EQ(three[0], 77);
	EQ(mprotect(three, 4096, PROT_NONE), 0);
	NULL_WITH(ibv_reg_mr(pd, three, 4096, 0), EFAULT);

	/* Ranges. The kernel's half is no memory of a program. */
	NULL_WITH(ibv_reg_mr(pd, node.memory, 0, rw), EINVAL);
	NULL_WITH(ibv_reg_mr(pd, node.memory, SIZE_MAX, rw), EINVAL);
	NULL_WITH(ibv_reg_mr(pd, (void *)(UINTPTR_MAX - 4095), 8192, rw), EINVAL);
	NULL_WITH(ibv_reg_mr(pd, (void *)(UINTPTR_MAX - 8191), 4096, rw), EFAULT);
	NULL_WITH(ibv_reg_mr(pd, NULL, 4096, rw), EINVAL);
	NULL_WITH(ibv_reg_mr_iova(pd, node.memory, 4096, UINT64_MAX - 4094, rw), EINVAL);
	EQ(ibv_dereg_mr(SOME(ibv_reg_mr_iova(pd, node.memory, 4096, 1ull << 62, rw))), 0);

	/* Access rights. */
	int remote[] = {IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC};
	for (int n = 0; n < 2; n++) {
		NULL_WITH(ibv_reg_mr(pd, node.memory, 4096, remote[n]), EINVAL);
		NULL_WITH(ibv_reg_mr(pd, node.memory, 4096, remote[n] | ro), EINVAL);
		EQ(ibv_dereg_mr(SOME(ibv_reg_mr(pd, node.memory, 4096, remote[n] | rw))), 0);
	}
	NULL_WITH(ibv_reg_mr(pd, node.memory, 4096, rw | IBV_ACCESS_MW_BIND), EOPNOTSUPP);
	NULL_WITH(ibv_reg_mr(pd, node.memory, 4096, rw | IBV_ACCESS_ON_DEMAND), EOPNOTSUPP);
	for (unsigned bit = 9; bit < 32; bit++) {
		unsigned access = (unsigned)rw | 1u << bit;
		if (bit >= 20 && bit < 30)
			EQ(ibv_dereg_mr(SOME(ibv_reg_mr(pd, node.memory, 4096, access))), 0);
		else
			NULL_WITH(ibv_reg_mr(pd, node.memory, 4096, access), EINVAL);
	}
	struct ibv_mr *zero = SOME(ibv_reg_mr(pd, node.memory, 4096, rw | IBV_ACCESS_ZERO_BASED));
	EQ(zero->length, 4096);
	EQ(zero->rkey != node.mr->rkey && zero->lkey != node.mr->lkey, 1);
	EQ(ibv_dereg_mr(zero), 0);
	close_node(&node);
}

/* A queue pair whose capability is as great as it may be, and then greater. */
#define LIMIT(field, most)                                                \
	do {                                                              \
		struct ibv_qp_init_attr init = init_of(&node);            \
		init.cap.field = (uint32_t)(most);                        \
		EQ(ibv_destroy_qp(SOME(ibv_create_qp(node.pd, &init))), 0); \
		init.cap.field = (uint32_t)(most) + 1;                    \
		NULL_WITH(ibv_create_qp(node.pd, &init), EINVAL);         \
		init.cap.field = UINT32_MAX;                              \
		NULL_WITH(ibv_create_qp(node.pd, &init), EINVAL);         \
	} while (0)

static void limits(char **argv, int fd)
{
	struct node node = open_node(4096);
	struct ibv_device_attr device;
	EQ(ibv_query_device(node.context, &device), 0);
	LIMIT(max_send_wr, device.max_qp_wr);
	LIMIT(max_recv_wr, device.max_qp_wr);
	LIMIT(max_send_sge, device.max_sge);
	LIMIT(max_recv_sge, device.max_sge);
	LIMIT(max_inline_data, 1024);

	struct ibv_context *context = node.context;
	EQ(ibv_destroy_cq(SOME(ibv_create_cq(context, device.max_cqe, NULL, NULL, 0))), 0);
	NULL_WITH(ibv_create_cq(context, device.max_cqe + 1, NULL, NULL, 0), EINVAL);
	NULL_WITH(ibv_create_cq(context, 0, NULL, NULL, 0), EINVAL);
	NULL_WITH(ibv_create_cq(context, -1, NULL, NULL, 0), EINVAL);
	NULL_WITH(ibv_create_cq(context, 16, NULL, NULL, -1), EINVAL);
	NULL_WITH(ibv_create_cq(context, 16, NULL, NULL, context->num_comp_vectors), EINVAL);

	/* As many objects as the device has, and one more. */
	struct ibv_qp **qps = calloc((size_t)device.max_qp + 1, sizeof(*qps));
	struct ibv_qp_init_attr init = init_of(&node);
	init.cap.max_send_wr = init.cap.max_recv_wr = 1;
	for (int n = 0; n < device.max_qp; n++)
		qps[n] = SOME(ibv_create_qp(node.pd, &init));
	NULL_WITH(ibv_create_qp(node.pd, &init), ENOMEM);
	for (int n = 0; n < device.max_qp; n++)
		EQ(ibv_destroy_qp(qps[n]), 0);
	free(qps);
	struct ibv_pd **pds = calloc((size_t)device.max_pd, sizeof(*pds));
	for (int n = 1; n < device.max_pd; n++)
		pds[n] = SOME(ibv_alloc_pd(context));
	NULL_WITH(ibv_alloc_pd(context), ENOMEM);
	for (int n = 1; n < device.max_pd; n++)
		EQ(ibv_dealloc_pd(pds[n]), 0);
	free(pds);
	close_node(&node);
}

static void kinds(char **argv, int fd)
{
	struct node node = open_node(4096);
	int types[] = {IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_RAW_PACKET, IBV_QPT_XRC_SEND,
		       IBV_QPT_XRC_RECV, IBV_QPT_DRIVER, 0, 77, -1};
	for (size_t n = 0; n < sizeof(types) / sizeof(types[0]); n++) {
		struct ibv_qp_init_attr init = init_of(&node);
		init.qp_type = types[n];
		NULL_WITH(ibv_create_qp(node.pd, &init), EOPNOTSUPP);
	}
	struct ibv_qp_init_attr plain = init_of(&node);
	struct ibv_qp_init_attr_ex init = {
		.send_cq = node.cq,
		.recv_cq = node.cq,
		.cap = plain.cap,
		.qp_type = IBV_QPT_RC,
		.pd = node.pd,
	};
	for (unsigned bit = 0; bit < 32; bit++) {
		init.comp_mask = IBV_QP_INIT_ATTR_PD | 1u << bit;
		if (1u << bit == IBV_QP_INIT_ATTR_PD)
			EQ(ibv_destroy_qp(SOME(ibv_create_qp_ex(node.context, &init))), 0);
		else
			NULL_WITH(ibv_create_qp_ex(node.context, &init), EOPNOTSUPP);
	}
	for (unsigned bit = 0; bit < 32; bit++) {
		init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
		init.create_flags = 1u << bit;
		NULL_WITH(ibv_create_qp_ex(node.context, &init), EOPNOTSUPP);
	}
	init.comp_mask = 0;
	NULL_WITH(ibv_create_qp_ex(node.context, &init), EINVAL);

	/* What does not exist yet says so. */
	struct ibv_cq_init_attr_ex cq_init = {.cqe = 16};
	NULL_WITH(ibv_create_cq_ex(node.context, &cq_init), EOPNOTSUPP);
	NULL_WITH(ibv_create_comp_channel(node.context), EOPNOTSUPP);
	struct ibv_srq_init_attr srq_init = {.attr = {.max_wr = 1, .max_sge = 1}};
	NULL_WITH(ibv_create_srq(node.pd, &srq_init), EOPNOTSUPP);
	struct ibv_ah_attr ah = {.port_num = 1};
	NULL_WITH(ibv_create_ah(node.pd, &ah), EOPNOTSUPP);
	NULL_WITH(ibv_reg_dmabuf_mr(node.pd, 0, 4096, 0, 0, 0), EOPNOTSUPP);
	close_node(&node);
}

static void null(char **argv, int fd)
{
	NULL_WITH(ibv_open_device(NULL), EINVAL);
	NULL_WITH(ibv_alloc_pd(NULL), EINVAL);
	NULL_WITH(ibv_create_cq(NULL, 16, NULL, NULL, 0), EINVAL);
	struct node node = open_node(4096);
	NULL_WITH((ibv_reg_mr)(NULL, node.memory, 4096, 0), EINVAL);
	struct ibv_qp_init_attr init = init_of(&node);
	NULL_WITH(ibv_create_qp(NULL, &init), EINVAL);
	NULL_WITH(ibv_create_qp(node.pd, NULL), EINVAL);
	init.send_cq = NULL;
	NULL_WITH(ibv_create_qp(node.pd, &init), EINVAL);
	init = init_of(&node);
	init.recv_cq = NULL;
	NULL_WITH(ibv_create_qp(node.pd, &init), EINVAL);
	struct ibv_qp *qp = make_qp(&node);
	struct ibv_qp_attr attr = attr_init();
	ERROR_OF(ibv_modify_qp(NULL, &attr, TO_INIT), EINVAL);
	ERROR_OF(ibv_modify_qp(qp, NULL, TO_INIT), EINVAL);
	ERROR_OF(ibv_query_qp(NULL, &attr, IBV_QP_STATE, &init), EINVAL);
	ERROR_OF(ibv_query_qp(qp, NULL, IBV_QP_STATE, &init), EINVAL);
	ERROR_OF(ibv_query_qp(qp, &attr, IBV_QP_STATE, NULL), EINVAL);
	ERROR_OF(ibv_destroy_qp(NULL), EINVAL);
	ERROR_OF(ibv_destroy_cq(NULL), EINVAL);
	ERROR_OF(ibv_dealloc_pd(NULL), EINVAL);
	ERROR_OF(ibv_dereg_mr(NULL), EINVAL);
	ERROR_OF(ibv_close_device(NULL), EINVAL);
	ERROR_OF(ibv_query_device(node.context, NULL), EINVAL);
	ERROR_OF(ibv_query_device(NULL, NULL), EINVAL);
	EQ(ibv_query_gid(node.context, 1, 0, NULL), -1);
	EQ(ibv_query_gid(node.context, 1, 1, &(union ibv_gid){}), -1);
	EQ(ibv_query_gid(node.context, 2, 0, &(union ibv_gid){}), -1);
	struct ibv_port_attr port;
	ERROR_OF(ibv_query_port(node.context, 0, &port), EINVAL);
	ERROR_OF(ibv_query_port(node.context, 2, &port), EINVAL);
	EQ(ibv_destroy_qp(qp), 0);
	close_node(&node);
}

int main(int argc, char **argv)
{
	struct test tests[] = {
		{"memory", memory}, {"limits", limits}, {"kinds", kinds}, {"null", null}};
	return RUN(tests);
}
