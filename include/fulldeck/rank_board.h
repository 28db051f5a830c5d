/* The writer's side of the rank board: a training process reports its progress, and `fulldeck top`, the launcher's
 * progress line, the monitor and the diagnosis of hung and slow ranks read it. Plain C11; any program that `fulldeck
 * run` started may use it. It sends nothing and stores nothing on disk: it only writes to memory that it shares with
 * the launcher. It is not the reader's side.
 *
 *   fulldeck_board* board = NULL;
 *   if (fulldeck_board_open(&board) != 0) puts(fulldeck_board_error());   // continue: the calls below accept a NULL
 * board fulldeck_board_phase(board, FULLDECK_BOARD_COMPUTE); fulldeck_board_figures figures = {.struct_bytes = sizeof
 * figures, .step = 12, .total_steps = 1000}; fulldeck_board_step(board, &figures); fulldeck_board_close(board);
 *
 * Link with libfulldeck_board.so, which has no other fulldeck dependency.
 *
 * Cost: no system call and well below a microsecond per call, except open, identity and group_join. Nothing here
 * blocks.
 *
 * Threads: a rank's record has sections, and each section is written by one thread at a time:
 *   process      fulldeck_board_identity, _stack_signal
 *   loop         fulldeck_board_phase, _step, _memory, _saved
 *   heartbeat    fulldeck_board_heartbeat
 *   each group   fulldeck_board_collective_begin and _end of that slot
 *   each check   fulldeck_board_observe of that check
 * If two threads write the same section at the same time, only its values are garbled. Any thread may call
 * fulldeck_board_set_error, _set_failure, _group_join and _group_leave. Open and close are the owner's, and no call may
 * run on a board while or after it is closed.
 *
 * Signals: all functions except open, close, identity and group_join may be called in a signal handler, under the same
 * rules.
 *
 * Processes: a child made by fork does not write: calls on the parent's board have no effect there (it may open its
 * own). A NULL board is allowed everywhere: calls on it have no effect, so that a program need not check before each
 * call.
 */
#ifndef FULLDECK_RANK_BOARD_H
#define FULLDECK_RANK_BOARD_H

#include <stdint.h>

#if defined(__GNUC__)
#define FULLDECK_BOARD_API __attribute__((visibility("default")))
#else
#define FULLDECK_BOARD_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fulldeck_board fulldeck_board;

/* Opens the record of this rank, which FULLDECK_BOARD_FD and FULLDECK_BOARD_SLOT identify. 0, or a negative errno:
 *   -ENOENT  this program was not started by fulldeck, or has no board (the descriptor was closed)
 *   -EPROTO  the versions of board and library differ; the text names both and the fix
 *   -EINVAL  the variables are malformed, or the board is damaged
 *   -ENOMEM  the board could not be mapped */
FULLDECK_BOARD_API int fulldeck_board_open(fulldeck_board** out);
/* The reason of this thread's last failed open; valid until its next call. */
FULLDECK_BOARD_API const char* fulldeck_board_error(void);
/* The data remains on the board. NULL is allowed. */
FULLDECK_BOARD_API void fulldeck_board_close(fulldeck_board* board);

/* ---- process ---- */

/* Components of fulldeck in this process: bits. */
enum {
  FULLDECK_BOARD_AGENT = 1u << 0,   /* the preloaded agent */
  FULLDECK_BOARD_HOOK = 1u << 1,    /* the hook on Python's path */
  FULLDECK_BOARD_RUNTIME = 1u << 2, /* the torch runtime, or another writer of the loop section */
};

/* Identifies this process (reads its pid and start time) and the components loaded; bits that were set stay set.
 * `program`: for display, at most 63 bytes are kept; NULL keeps the current one. Reads /proc, which takes some tens
 * of microseconds. */
FULLDECK_BOARD_API void fulldeck_board_identity(fulldeck_board* board, uint32_t loaded, const char* program);

/* Announces that this process, whose identity is already on the board, writes the stacks of its threads on this
 * real-time signal (docs/rank-agent.md); 0: not, or no longer. For the agent. May be called in a signal handler. */
FULLDECK_BOARD_API void fulldeck_board_stack_signal(fulldeck_board* board, int signal_number);

/* ---- loop ---- */

/* What the training loop is doing. Other values are ignored. */
enum {
  FULLDECK_BOARD_STARTING = 1,      /* imports, arguments */
  FULLDECK_BOARD_INIT = 2,          /* devices, process groups, the model */
  FULLDECK_BOARD_LOADING = 3,       /* weights or a checkpoint are read */
  FULLDECK_BOARD_COMPILING = 4,     /* kernels or graphs are compiled; may take minutes */
  FULLDECK_BOARD_DATA = 5,          /* waiting for the next batch */
  FULLDECK_BOARD_COMPUTE = 6,       /* forward, backward, optimizer */
  FULLDECK_BOARD_COMMUNICATION = 7, /* waiting for other ranks */
  FULLDECK_BOARD_CHECKPOINT = 8,    /* a checkpoint is written */
  FULLDECK_BOARD_VALIDATION = 9,
  FULLDECK_BOARD_FINISHED = 10, /* no step will follow */
  FULLDECK_BOARD_OTHER_PHASE = 11,
};

FULLDECK_BOARD_API void fulldeck_board_phase(fulldeck_board* board, int phase);

/* Times are sums since the loop began, in nanoseconds; 0 if not measured. */
typedef struct fulldeck_board_figures {
  uint32_t struct_bytes; /* sizeof(fulldeck_board_figures), so that the struct can grow at its end */
  uint32_t has_loss;     /* 0: `loss` is not set */
  uint64_t step;         /* steps done; never decreases within a run, so that a stalled step is visible */
  uint64_t total_steps;  /* 0: not known */
  uint64_t epoch;
  double loss;      /* NaN and infinities are kept as they are */
  uint64_t samples; /* processed by this rank since the loop began */
  uint64_t data_ns;
  uint64_t compute_ns;
  uint64_t communication_ns;
  uint64_t checkpoint_ns;
  uint64_t batch_fingerprint;      /* hash of the inputs of this step; 0: not computed this time, the last one stays */
  uint64_t parameters_fingerprint; /* after this step; 0 as above. Equal on all ranks of a data-parallel group. */
  /* Sums since the loop began, for a model whose gradients are reduced over the ranks; 0: not reported. */
  uint64_t reductions;      /* backward passes whose gradients were reduced over the ranks */
  uint64_t unreduced_steps; /* the most consecutive steps without a reduction since the step before */
  uint64_t repeated_orders; /* epochs that should have been shuffled but began in the order of the epoch before */
} fulldeck_board_figures;

/* A step is done. Takes the time and the interval since the previous step by itself. 0, or -EINVAL: struct_bytes was
 * not set. */
FULLDECK_BOARD_API int fulldeck_board_step(fulldeck_board* board, const fulldeck_board_figures* figures);
/* Memory of the rank's card that this process holds, in bytes, and its maximum so far. */
FULLDECK_BOARD_API void fulldeck_board_memory(fulldeck_board* board, uint64_t bytes_now, uint64_t bytes_peak);

/* The training wrote a file, for example a checkpoint. `file` identifies it and is not 0: the same number on two
 * ranks of a node means that both wrote the same file. */
FULLDECK_BOARD_API void fulldeck_board_saved(fulldeck_board* board, uint64_t file);

/* Counts bytes of standard output or error that could not be written to the log file of this rank because its
 * disk is full. For the agent. Any thread; may be called in a signal handler. */
FULLDECK_BOARD_API void fulldeck_board_log_lost(fulldeck_board* board, uint64_t bytes);

/* ---- card ---- */

/* Whether the rank's card is busy with the rank's work, as the launcher judges from the card's telemetry. */
enum {
  FULLDECK_BOARD_CARD_NOT_TOLD = 0, /* the rank has no card, or it is not watched */
  FULLDECK_BOARD_CARD_UNKNOWN = 1,
  FULLDECK_BOARD_CARD_BUSY = 2,
  FULLDECK_BOARD_CARD_IDLE = 3,
};

/* Reports that a fulldeck probe computed on the rank's card and has just ended: the card's activity until now was
 * not the program's. Any thread; may be called in a signal handler. */
FULLDECK_BOARD_API void fulldeck_board_probed(fulldeck_board* board);

/* Of this rank; any thread. FULLDECK_BOARD_CARD_NOT_TOLD for a NULL board. */
FULLDECK_BOARD_API int fulldeck_board_card_use(const fulldeck_board* board);

/* ---- heartbeat ---- */

/* A heartbeat from a thread other than the loop's: shows that the process runs while its loop waits. */
FULLDECK_BOARD_API void fulldeck_board_heartbeat(fulldeck_board* board);

/* ---- collective groups ---- */

enum { FULLDECK_BOARD_GROUPS = 8 }; /* number of groups shown per rank; further groups work but are not shown */

enum {
  FULLDECK_BOARD_BARRIER = 1,
  FULLDECK_BOARD_BROADCAST = 2,
  FULLDECK_BOARD_ALL_REDUCE = 3,
  FULLDECK_BOARD_REDUCE = 4,
  FULLDECK_BOARD_ALL_GATHER = 5,
  FULLDECK_BOARD_GATHER = 6,
  FULLDECK_BOARD_SCATTER = 7,
  FULLDECK_BOARD_REDUCE_SCATTER = 8,
  FULLDECK_BOARD_ALL_TO_ALL = 9,
  FULLDECK_BOARD_SEND = 10,
  FULLDECK_BOARD_RECEIVE = 11,
  FULLDECK_BOARD_OTHER_OPERATION = 12,
  FULLDECK_BOARD_MEETING = 13, /* rendezvous: the group is being created */
};

enum {
  FULLDECK_BOARD_NO_DATA = 0, /* barrier, rendezvous */
  FULLDECK_BOARD_BOOL = 1,
  FULLDECK_BOARD_INT8 = 2,
  FULLDECK_BOARD_UINT8 = 3,
  FULLDECK_BOARD_INT16 = 4,
  FULLDECK_BOARD_INT32 = 5,
  FULLDECK_BOARD_INT64 = 6,
  FULLDECK_BOARD_FLOAT8 = 7,
  FULLDECK_BOARD_FLOAT16 = 8,
  FULLDECK_BOARD_BFLOAT16 = 9,
  FULLDECK_BOARD_FLOAT32 = 10,
  FULLDECK_BOARD_FLOAT64 = 11,
  FULLDECK_BOARD_COMPLEX64 = 12,
  FULLDECK_BOARD_COMPLEX128 = 13,
  FULLDECK_BOARD_OTHER_DATATYPE = 14,
};

/* Takes a slot for a group of ranks. `group` is not 0 and is the same on all its members. A group that already has a
 * slot gets it again, reset if it belonged to another process. `name`: for display, at most 15 bytes are kept. This
 * is rank `rank` of `size`. Makes a system call, and reads /proc when all slots are taken. Returns the slot, -ENOSPC
 * when all are taken, or -EINVAL for an invalid argument or a NULL board. A negative slot is allowed below: calls
 * with it have no effect. */
FULLDECK_BOARD_API int fulldeck_board_group_join(fulldeck_board* board, uint64_t group, const char* name, uint32_t size,
                                                 uint32_t rank);
/* The group no longer exists; another may take its slot. */
FULLDECK_BOARD_API void fulldeck_board_group_leave(fulldeck_board* board, int slot);

typedef struct fulldeck_board_collective {
  uint32_t struct_bytes; /* sizeof(fulldeck_board_collective) */
  uint32_t operation;
  uint32_t datatype;
  int32_t root;         /* also the peer of a send or receive; -1: none */
  uint64_t count;       /* elements that this rank contributes */
  uint64_t bytes;       /* their size */
  uint64_t sequence;    /* number of the call in its group, the same on all members; 0: the board counts, from 1 */
  uint64_t fingerprint; /* must be the same on all members; 0: derived from operation, datatype, count and root (pass
                           one if ranks may differ in these: uneven gathers, send and receive) */
} fulldeck_board_collective;

/* A call of the group begins. Returns its number, to be passed to the matching end. 0: nothing was written (no
 * board, no slot, struct_bytes not set), and an end with it has no effect. Several calls may be in progress if they
 * end in the order in which they began. */
FULLDECK_BOARD_API uint64_t fulldeck_board_collective_begin(fulldeck_board* board, int slot,
                                                            const fulldeck_board_collective* call);
FULLDECK_BOARD_API void fulldeck_board_collective_end(fulldeck_board* board, int slot, uint64_t sequence);

/* ---- checks ---- */

/* What a rank observed about its own script, for the launcher's diagnosis of silent errors (docs/python.md). The
 * meaning of state, value, count, step and text depends on the check. A check that was never observed counts as
 * unknown. */
enum {
  FULLDECK_BOARD_CHECK_GROUP = 0,      /* state 1: no process group so far, 2: one was created; count: optimizer
                                          steps */
  FULLDECK_BOARD_CHECK_WEIGHTS = 1,    /* `value` of `count` tensors of a state dict matched; text: the module's
                                          class */
  FULLDECK_BOARD_CHECK_GRADIENTS = 2,  /* `value` of `count` trainable tensors never had a gradient in `step` sampled
                                          steps; text: names; state 1: all-zero gradients, 2: no gradients, in too
                                          few steps to be certain */
  FULLDECK_BOARD_CHECK_LABELS = 3,     /* state 1: every label of `count` batches is `value`, 2: labels differ */
  FULLDECK_BOARD_CHECK_VALIDATION = 4, /* state 1: validation uses training samples, 2: it does not, 3: the model ran
                                          on them, perhaps for another purpose; `value` of `count` samples */
  FULLDECK_BOARD_CHECK_CHILDREN = 5,   /* `count` children failed; value: the first one's exit status; text: its
                                          command */
  FULLDECK_BOARD_CHECK_DEVICE = 6,     /* state 1: the optimizer's parameters are on the CPU, 2: on `text` */
  FULLDECK_BOARD_CHECK_FINITE = 7,     /* state 1: gradients, 2: the loss, 3: parameters were NaN or Inf, first in
                                          `step` */
  FULLDECK_BOARD_CHECK_RANDOM = 8,     /* value: hash of the random state before step 2; state 1: every rank should
                                          have its own */
  FULLDECK_BOARD_CHECK_VISIBILITY = 9, /* state 1: the script changed its visible devices and abandoned its own card;
                                          text: how */
  FULLDECK_BOARD_CHECK_DISABLED = 10,  /* `count` checks failed themselves and are off; text: which, and why */
  FULLDECK_BOARD_CHECK_MODULES = 11,   /* `count` modules in use have a vendor's name, but no package installed them;
                                          text: the first one's file */
  FULLDECK_BOARD_CHECKS = 12
};

/* Writes all values of a check. `text`: at most 79 bytes are kept; NULL for none. Unknown checks are ignored. */
FULLDECK_BOARD_API void fulldeck_board_observe(fulldeck_board* board, int check, uint32_t state, uint64_t value,
                                               uint64_t count, uint64_t step, const char* text);

/* ---- error ---- */

/* The last error of this rank, as a human-readable message: UTF-8, cut after at most 415 bytes at a character
 * boundary. If two threads call it at the same time, one message may be lost. */
FULLDECK_BOARD_API void fulldeck_board_set_error(fulldeck_board* board, const char* text);

/* The kind of failure. The launcher uses these codes, never the text, to find the root cause. */
enum {
  FULLDECK_BOARD_FAILURE_OTHER = 1,
  FULLDECK_BOARD_FAILURE_PEER_LOST = 2,       /* another rank died or left while this one still needed it */
  FULLDECK_BOARD_FAILURE_DIFFERENT_CALLS = 3, /* the ranks of a group made different calls */
  FULLDECK_BOARD_FAILURE_NONFINITE = 4,       /* a rank contributed a non-finite value */
  FULLDECK_BOARD_FAILURE_TIMEOUT = 5,         /* another rank did not arrive in time */
};

/* The same with its kind and the rank that caused it: the RANK of the one that left, made the mismatched call,
 * contributed the value or did not arrive, which may be this rank itself; -1: not known. */
FULLDECK_BOARD_API void fulldeck_board_set_failure(fulldeck_board* board, uint32_t code, int culprit, const char* text);

#ifdef __cplusplus
}
#endif

#endif
