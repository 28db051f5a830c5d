/* Collective operations between the processes of one host, through shared memory. Plain C11, no torch: any framework
 * and any language that can call C may use it. Link with libfulldeck_collectives.so.
 *
 *   fulldeck_group_options options = {.struct_bytes = sizeof options, .name = "world", .key = "job-42",
 *                                     .rank = rank, .size = size};
 *   fulldeck_group* group = NULL;
 *   if (fulldeck_group_create(&options, &group) != FULLDECK_OK) puts(fulldeck_error_text());
 *   if (fulldeck_all_reduce(group, gradients, gradients, count, FULLDECK_FLOAT32, FULLDECK_SUM) != FULLDECK_OK)
 *     puts(fulldeck_error_text());
 *   fulldeck_group_destroy(group);
 *
 * Numbers: every element is reduced in the order of the ranks, 0 first, so a result is the same bit by bit on every
 * rank, in every run, and however the data was cut into calls. 16-bit floats are reduced in 32 bits and rounded once.
 *
 * Order: all members of a group make the same calls in the same order; send and receive stand apart from that order.
 * Members that do otherwise are told so, all of them: see FULLDECK_ERROR_MISMATCH.
 *
 * Threads: any thread may call; calls on one group take turns, calls on different groups do not disturb each other.
 * Where two threads of a process use one group, it is theirs to keep the order the same on all ranks.
 *
 * Waiting: a call returns when its data is there, and never waits without end: the death of a member ends it within a
 * second, and the group's time-out ends it in any case. A group in which that happened is of no more use: every further
 * call returns the same error. Make a new one.
 *
 * Processes: a child made by fork has no groups; calls on the parent's return FULLDECK_ERROR_ARGUMENT there.
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

/* What a call returns. fulldeck_error_text() says more. */
enum {
  FULLDECK_OK = 0,
  FULLDECK_ERROR_ARGUMENT = -1,  /* an impossible argument; nothing was sent, the group is as it was */
  FULLDECK_ERROR_SYSTEM = -2,    /* memory or descriptors cannot be had */
  FULLDECK_ERROR_PEER_LOST = -3, /* a member died or left the group */
  FULLDECK_ERROR_TIMEOUT = -4,   /* a member did not come in time; the text says who, and where each one is */
  FULLDECK_ERROR_MISMATCH = -5,  /* the members made different calls; the text says who called what */
  FULLDECK_ERROR_ABORTED = -6,   /* fulldeck_group_abort was called, here or on another member */
  FULLDECK_ERROR_STRANGER = -7,  /* while meeting: another version, user, host or key */
};

/* Why this thread's last call failed: a sentence or several lines, valid until its next failing call. Never NULL. */
FULLDECK_COLLECTIVES_API const char* fulldeck_error_text(void);

/* ---- groups ---- */

typedef struct fulldeck_group_options {
  uint32_t struct_bytes; /* sizeof(fulldeck_group_options), so that the struct can grow at its end */
  int32_t rank;          /* of this member: 0 … size−1 */
  int32_t size;          /* 1 … 256 */
  uint32_t check_finite; /* 1: reductions of floats look for results that are not finite; see fulldeck_nonfinite */
  const char* name;      /* for people and for the rank board; with `key` it says which group is meant */
  const char* key;       /* the same on all members and on nobody else: a secret, a run's id. NULL: made from
                            FULLDECK_RUN_ID, MASTER_ADDR and MASTER_PORT, and an error where there are none */
  uint64_t timeout_ms;   /* of making the group and of every call; 0: 1,800,000 */
} fulldeck_group_options;

/* Meets the other members: each calls this with its own rank, in any order, within the time-out. All members must run
 * on this host, in one network namespace, as one user, with the same version of this library. */
FULLDECK_COLLECTIVES_API int fulldeck_group_create(const fulldeck_group_options* options, fulldeck_group** out);
/* Leaves the group: a member that still waits for this one gets FULLDECK_ERROR_PEER_LOST. No other thread may be in a
 * call of the group (abort it first), and memory from fulldeck_allocate goes with it. NULL is fine. */
FULLDECK_COLLECTIVES_API void fulldeck_group_destroy(fulldeck_group* group);
/* Ends every waiting and every further call of the group on all members with FULLDECK_ERROR_ABORTED and this reason.
 * Any thread, at any time before destroy. */
FULLDECK_COLLECTIVES_API void fulldeck_group_abort(fulldeck_group* group, const char* reason);
/* FULLDECK_OK, or what the group failed with. Looks for dead members too, and waits for nobody. */
FULLDECK_COLLECTIVES_API int fulldeck_group_status(fulldeck_group* group);
/* Of the calls that begin after it. 0 is an error. */
FULLDECK_COLLECTIVES_API int fulldeck_group_set_timeout(fulldeck_group* group, uint64_t timeout_ms);

/* ---- collectives ---- */

enum {
  FULLDECK_BOOL =
      1, /* one byte, 0 or not 0; results are 0 or 1. sum, max and or are "or"; prod, min and and are "and" */
  FULLDECK_INT8 = 2,
  FULLDECK_UINT8 = 3, /* also for any bytes that are only moved */
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
  FULLDECK_SUM = 1, /* integers wrap round */
  FULLDECK_AVG = 2, /* the sum divided by the number of members; integers are cut towards 0 */
  FULLDECK_MIN = 3, /* a NaN on any rank gives NaN */
  FULLDECK_MAX = 4,
  FULLDECK_PROD = 5,
  FULLDECK_AND = 6, /* bits; integers and bool only */
  FULLDECK_OR = 7,
  FULLDECK_XOR = 8,
};

/* `count` is in elements. Input and output are the same buffer or do not overlap; any alignment will do; a pointer may
 * be NULL where nothing is read or written through it. */
FULLDECK_COLLECTIVES_API int fulldeck_all_reduce(fulldeck_group* group, const void* input, void* output, uint64_t count,
                                                 int datatype, int reduction);
/* `output` is written on `root` only. */
FULLDECK_COLLECTIVES_API int fulldeck_reduce(fulldeck_group* group, const void* input, void* output, uint64_t count,
                                             int datatype, int reduction, int root);
FULLDECK_COLLECTIVES_API int fulldeck_broadcast(fulldeck_group* group, void* buffer, uint64_t count, int datatype,
                                                int root);
/* `count`: of each rank's part. The output holds `size` parts in the order of the ranks; the input may be its own part.
 */
FULLDECK_COLLECTIVES_API int fulldeck_all_gather(fulldeck_group* group, const void* input, void* output, uint64_t count,
                                                 int datatype);
/* `count`: of the part that each rank gets. The input holds `size` parts; the output may be its own part. */
FULLDECK_COLLECTIVES_API int fulldeck_reduce_scatter(fulldeck_group* group, const void* input, void* output,
                                                     uint64_t count, int datatype, int reduction);
FULLDECK_COLLECTIVES_API int fulldeck_gather(fulldeck_group* group, const void* input, void* output, uint64_t count,
                                             int datatype, int root);
FULLDECK_COLLECTIVES_API int fulldeck_scatter(fulldeck_group* group, const void* input, void* output, uint64_t count,
                                              int datatype, int root);
/* Input and output hold `size` parts of `count` elements; not in place. */
FULLDECK_COLLECTIVES_API int fulldeck_all_to_all(fulldeck_group* group, const void* input, void* output, uint64_t count,
                                                 int datatype);
/* Parts of any size, one after another: input_counts[r] goes to rank r, output_counts[r] comes from it. What one sends
 * and the other expects must be equal, or it is a mismatch. */
FULLDECK_COLLECTIVES_API int fulldeck_all_to_all_v(fulldeck_group* group, const void* input,
                                                   const uint64_t* input_counts, void* output,
                                                   const uint64_t* output_counts, int datatype);
FULLDECK_COLLECTIVES_API int fulldeck_barrier(fulldeck_group* group);

/* ---- from one to another ---- */

enum { FULLDECK_ANY_SOURCE = -1 };

/* Messages of one sender and tag arrive in the order in which they were sent. A send returns when the buffer may be
 * used again, which can be before it is received; a receive takes exactly `bytes`: a message of another length is a
 * mismatch. */
FULLDECK_COLLECTIVES_API int fulldeck_send(fulldeck_group* group, const void* data, uint64_t bytes, int to,
                                           uint64_t tag);
/* `from` may be FULLDECK_ANY_SOURCE; *came_from (may be NULL) gets the sender. */
FULLDECK_COLLECTIVES_API int fulldeck_receive(fulldeck_group* group, void* data, uint64_t bytes, int from, uint64_t tag,
                                              int* came_from);

/* ---- shared memory ---- */

/* Memory of this member that the others can reach: an all_reduce in place on such memory of every member copies
 * nothing. Aligned to 64 bytes, already backed by pages. It lives until it is freed or the group is destroyed. */
FULLDECK_COLLECTIVES_API int fulldeck_allocate(fulldeck_group* group, uint64_t bytes, void** out);
FULLDECK_COLLECTIVES_API void fulldeck_free(fulldeck_group* group, void* memory);

/* ---- NaN and infinity ---- */

typedef struct fulldeck_nonfinite_record {
  uint32_t struct_bytes; /* sizeof(fulldeck_nonfinite_record) */
  int32_t rank; /* the first whose input was not finite there; -1: all inputs were finite, the reduction overflowed */
  uint64_t element; /* the first of the result that is not finite */
  uint64_t call;    /* number of the call in the group, as on the rank board */
} fulldeck_nonfinite_record;

/* 1 and the record if the last reduction of this group gave a result that is not finite, 0 if not. The same on all
 * members of an all_reduce; on the root of a reduce; for reduce_scatter, of this rank's part. Needs check_finite. */
FULLDECK_COLLECTIVES_API int fulldeck_nonfinite(fulldeck_group* group, fulldeck_nonfinite_record* record);

#ifdef __cplusplus
}
#endif

#endif
