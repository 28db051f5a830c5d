/* Collective operations between the processes of one node, through shared memory. Plain C11, without torch: usable from
 * any framework and any language that can call C. Not for several nodes. Link with libfulldeck_collectives.so.
 *
 *   fulldeck_group_options options = {.struct_bytes = sizeof options, .name = "world", .key = "job-42",
 *                                     .rank = rank, .size = size};
 *   fulldeck_group* group = NULL;
 *   if (fulldeck_group_create(&options, &group) != FULLDECK_OK) puts(fulldeck_error_text());
 *   if (fulldeck_all_reduce(group, gradients, gradients, count, FULLDECK_FLOAT32, FULLDECK_SUM) != FULLDECK_OK)
 *     puts(fulldeck_error_text());
 *   fulldeck_group_destroy(group);
 *
 * Results: every element is reduced in rank order, from 0, so a result is bitwise identical on every rank, in every
 * run, and however the data is divided into calls. 16-bit floats are accumulated in 32 bits and rounded once.
 *
 * Order: all members of a group make the same calls in the same order; send and receive are exempt. If members
 * disagree, all of them get FULLDECK_ERROR_MISMATCH.
 *
 * Threads: any thread may call. Calls on one group are serialized; calls on different groups are independent. If two
 * threads of a process use one group, they must keep the order the same on all ranks.
 *
 * Waiting: a call returns when its data is complete, and never waits forever. The death of a member ends it within a
 * second; the group's timeout ends it in any case. After that the group is unusable: every further call returns the
 * same error. Create a new group.
 *
 * Processes: a child made by fork has no groups; calls on the parent's groups return FULLDECK_ERROR_ARGUMENT there.
 */
#ifndef FULLDECK_COLLECTIVES_H
#define FULLDECK_COLLECTIVES_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define FULLDECK_COLLECTIVES_API __attribute__((visibility("default")))
#else
#define FULLDECK_COLLECTIVES_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fulldeck_group fulldeck_group;

/* What a call returns. fulldeck_error_text() has the details. */
enum {
  FULLDECK_OK = 0,
  FULLDECK_ERROR_ARGUMENT = -1,  /* invalid argument; nothing was sent, the group is unchanged */
  FULLDECK_ERROR_SYSTEM = -2,    /* memory or descriptors are not available */
  FULLDECK_ERROR_PEER_LOST = -3, /* a member died or left the group */
  FULLDECK_ERROR_TIMEOUT = -4,   /* a member did not arrive in time; the text lists who, and where each member is */
  FULLDECK_ERROR_MISMATCH = -5,  /* the members made different calls; the text lists who called what */
  FULLDECK_ERROR_ABORTED = -6,   /* fulldeck_group_abort was called, here or on another member */
  FULLDECK_ERROR_STRANGER = -7,  /* during rendezvous: another version, user, node or key */
};

/* Why this thread's last call failed: one or more lines, valid until its next failing call. Never NULL. */
FULLDECK_COLLECTIVES_API const char* fulldeck_error_text(void);

/* ---- groups ---- */

typedef struct fulldeck_group_options {
  uint32_t struct_bytes; /* sizeof(fulldeck_group_options), so that the struct can grow at its end */
  int32_t rank;          /* of this member: 0 … size−1 */
  int32_t size;          /* 1 … 256 */
  uint32_t check_finite; /* 1: floating-point reductions check for non-finite results; see fulldeck_nonfinite */
  const char* name;      /* for messages and the rank board; identifies the group together with `key` */
  const char* key;       /* the same on all members and unknown to other processes: a secret, a run id. NULL: derived
                            from FULLDECK_RUN_ID, MASTER_ADDR and MASTER_PORT; an error if none of them is set */
  uint64_t timeout_ms;   /* of the rendezvous and of every call; 0: 1,800,000 */
} fulldeck_group_options;

/* Rendezvous of the members: each calls this with its own rank, in any order, within the timeout. All members must
 * run on this node, in one network namespace, as one user, with the same version of this library. */
FULLDECK_COLLECTIVES_API int fulldeck_group_create(const fulldeck_group_options* options, fulldeck_group** out);
/* Leaves the group: a member that still waits for this one gets FULLDECK_ERROR_PEER_LOST. No other thread may be in
 * a call of the group (abort it first). Frees the memory from fulldeck_allocate. NULL is allowed. */
FULLDECK_COLLECTIVES_API void fulldeck_group_destroy(fulldeck_group* group);
/* Ends every pending and every further call of the group on all members with FULLDECK_ERROR_ABORTED and this reason.
 * Any thread, at any time before destroy. */
FULLDECK_COLLECTIVES_API void fulldeck_group_abort(fulldeck_group* group, const char* reason);
/* FULLDECK_OK, or the error that the group failed with. Also checks for dead members. Does not wait. */
FULLDECK_COLLECTIVES_API int fulldeck_group_status(fulldeck_group* group);
/* Applies to calls that begin after it. 0 is an error. */
FULLDECK_COLLECTIVES_API int fulldeck_group_set_timeout(fulldeck_group* group, uint64_t timeout_ms);

/* ---- collectives ---- */

enum {
  FULLDECK_BOOL =
      1, /* one byte, 0 or not 0; results are 0 or 1. Sum, max and or act as logical "or"; prod, min and and as "and" */
  FULLDECK_INT8 = 2,
  FULLDECK_UINT8 = 3, /* also for any bytes that are only copied */
  FULLDECK_INT16 = 4,
  FULLDECK_UINT16 = 5,
  FULLDECK_INT32 = 6,
  FULLDECK_UINT32 = 7,
  FULLDECK_INT64 = 8,
  FULLDECK_UINT64 = 9,
  FULLDECK_FLOAT16 = 10,
  FULLDECK_BFLOAT16 = 11,
  FULLDECK_FLOAT32 = 12,
  FULLDECK_FLOAT64 = 13,
};

enum {
  FULLDECK_SUM = 1, /* integers wrap around */
  FULLDECK_AVG = 2, /* the sum divided by the number of members; integers are truncated toward 0 */
  FULLDECK_MIN = 3, /* a NaN on any rank gives NaN */
  FULLDECK_MAX = 4,
  FULLDECK_PROD = 5,
  FULLDECK_AND = 6, /* bitwise; integers and bool only */
  FULLDECK_OR = 7,
  FULLDECK_XOR = 8,
};

/* `count` is in elements. Input and output are the same buffer or do not overlap. Any alignment is allowed. A
 * pointer may be NULL if nothing is read or written through it. */
FULLDECK_COLLECTIVES_API int fulldeck_all_reduce(fulldeck_group* group, const void* input, void* output, uint64_t count,
                                                 int datatype, int reduction);
/* `output` is written on `root` only. */
FULLDECK_COLLECTIVES_API int fulldeck_reduce(fulldeck_group* group, const void* input, void* output, uint64_t count,
                                             int datatype, int reduction, int root);
FULLDECK_COLLECTIVES_API int fulldeck_broadcast(fulldeck_group* group, void* buffer, uint64_t count, int datatype,
                                                int root);
/* `count`: of each rank's chunk. The output holds `size` chunks in rank order; the input may be its own chunk there.
 */
FULLDECK_COLLECTIVES_API int fulldeck_all_gather(fulldeck_group* group, const void* input, void* output, uint64_t count,
                                                 int datatype);
/* `count`: of the chunk that each rank gets. The input holds `size` chunks; the output may be this rank's own chunk
 * there. */
FULLDECK_COLLECTIVES_API int fulldeck_reduce_scatter(fulldeck_group* group, const void* input, void* output,
                                                     uint64_t count, int datatype, int reduction);
FULLDECK_COLLECTIVES_API int fulldeck_gather(fulldeck_group* group, const void* input, void* output, uint64_t count,
                                             int datatype, int root);
FULLDECK_COLLECTIVES_API int fulldeck_scatter(fulldeck_group* group, const void* input, void* output, uint64_t count,
                                              int datatype, int root);
/* Input and output hold `size` chunks of `count` elements; not in place. */
FULLDECK_COLLECTIVES_API int fulldeck_all_to_all(fulldeck_group* group, const void* input, void* output, uint64_t count,
                                                 int datatype);
/* Chunks of any size, back to back: input_counts[r] goes to rank r, output_counts[r] comes from it. If the count
 * sent differs from the count expected, the call is a mismatch. */
FULLDECK_COLLECTIVES_API int fulldeck_all_to_all_v(fulldeck_group* group, const void* input,
                                                   const uint64_t* input_counts, void* output,
                                                   const uint64_t* output_counts, int datatype);
FULLDECK_COLLECTIVES_API int fulldeck_barrier(fulldeck_group* group);

/* ---- point to point ---- */

enum { FULLDECK_ANY_SOURCE = -1 };

/* Messages of one sender and tag arrive in the order in which they were sent. A send returns when the buffer may be
 * reused, possibly before the message is received. A receive takes exactly `bytes`; a message of another length is a
 * mismatch. */
FULLDECK_COLLECTIVES_API int fulldeck_send(fulldeck_group* group, const void* data, uint64_t bytes, int to,
                                           uint64_t tag);
/* `from` may be FULLDECK_ANY_SOURCE; *came_from (may be NULL) gets the sender. */
FULLDECK_COLLECTIVES_API int fulldeck_receive(fulldeck_group* group, void* data, uint64_t bytes, int from, uint64_t tag,
                                              int* came_from);

/* ---- shared memory ---- */

/* Memory of this member that the other members can read: an in-place all_reduce on such memory of every member needs
 * no copy. Aligned to 64 bytes and already backed by pages. Valid until it is freed or the group is destroyed. */
FULLDECK_COLLECTIVES_API int fulldeck_allocate(fulldeck_group* group, uint64_t bytes, void** out);
FULLDECK_COLLECTIVES_API void fulldeck_free(fulldeck_group* group, void* memory);

/* ---- NaN and infinity ---- */

typedef struct fulldeck_nonfinite_record {
  uint32_t struct_bytes; /* sizeof(fulldeck_nonfinite_record) */
  int32_t rank;     /* the first whose input was non-finite at that element; -1: all inputs were finite, the reduction
                       overflowed */
  uint64_t element; /* the first non-finite element of the result */
  uint64_t call;    /* number of the call in the group, as on the rank board */
} fulldeck_nonfinite_record;

/* Returns 1 and the record if the last reduction of this group produced a non-finite result, otherwise 0. The same
 * on all members of an all_reduce; on the root of a reduce; for reduce_scatter, only for this rank's chunk. Needs
 * check_finite. */
FULLDECK_COLLECTIVES_API int fulldeck_nonfinite(fulldeck_group* group, fulldeck_nonfinite_record* record);

#ifdef __cplusplus
}
#endif

#endif
