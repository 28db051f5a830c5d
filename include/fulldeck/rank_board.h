/* The writer's side of the rank board: a training process says how far it is, and `fulldeck top`, the launcher's
 * progress line, the monitor and the verdicts on hung and slow ranks read it. Plain C11; any program that `fulldeck
 * run` started may use it. It sends nothing and stores nothing on disk: it writes to memory that it shares with the
 * launcher.
 *
 *   fulldeck_board* board = NULL;
 *   if (fulldeck_board_open(&board) != 0) puts(fulldeck_board_error());   // and go on: a NULL board is fine below
 *   fulldeck_board_phase(board, FULLDECK_BOARD_COMPUTE);
 *   fulldeck_board_figures figures = {.struct_bytes = sizeof figures, .step = 12, .total_steps = 1000};
 *   fulldeck_board_step(board, &figures);
 *   fulldeck_board_close(board);
 *
 * Link with libfulldeck_board.so; it needs nothing else of fulldeck.
 *
 * Cost: no system call and well below a microsecond a call, except open, identity and group_join. Nothing here waits.
 *
 * Threads: a rank's record has parts, and each part belongs to one thread at a time:
 *   process      fulldeck_board_identity, _stack_signal
 *   loop         fulldeck_board_phase, _step, _memory, _saved
 *   heartbeat    fulldeck_board_heartbeat
 *   each group   fulldeck_board_collective_begin and _end of that slot
 *   each check   fulldeck_board_observe of that check
 * Two threads that write the same part at the same time spoil its figures, and nothing else. Any thread may call
 * fulldeck_board_set_error, _set_failure, _group_join and _group_leave; open and close are the owner's, and nothing may
 * be called on a board while or after it is closed.
 *
 * Signals: all but open, close, identity and group_join may be called in a signal handler, by the same rules.
 *
 * Processes: a child made by fork does not write: calls on the parent's board do nothing there (it may open its own).
 * A NULL board is fine everywhere: calls on it do nothing, so that a program needs no question before each of them.
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

/* Opens the record of this rank: FULLDECK_BOARD_FD and FULLDECK_BOARD_SLOT say which. 0, or a negative errno:
 *   -ENOENT  this program was not started by fulldeck, or has no board (the descriptor was closed)
 *   -EPROTO  the board has another version than this library; the text says which two, and what to do
 *   -EINVAL  the variables are malformed, or the board is damaged
 *   -ENOMEM  it cannot be mapped */
FULLDECK_BOARD_API int fulldeck_board_open(fulldeck_board** out);
/* The reason of this thread's last failed open; valid until its next call. */
FULLDECK_BOARD_API const char* fulldeck_board_error(void);
/* What was written stays on the board. NULL is fine. */
FULLDECK_BOARD_API void fulldeck_board_close(fulldeck_board* board);

/* ---- process ---- */

/* What of fulldeck is in this process: bits. */
enum {
  FULLDECK_BOARD_AGENT = 1u << 0,   /* the preloaded agent */
  FULLDECK_BOARD_HOOK = 1u << 1,    /* the hook on Python's path */
  FULLDECK_BOARD_RUNTIME = 1u << 2, /* the torch runtime, or another writer of the loop */
};

/* Says which process this is (pid and start time are found out) and what is loaded; bits that were set stay set.
 * `program`: for people, at most 63 bytes are kept; NULL keeps what stands there. Reads /proc, which takes some tens of
 * microseconds. */
FULLDECK_BOARD_API void fulldeck_board_identity(fulldeck_board* board, uint32_t loaded, const char* program);

/* Says that this process, whose identity was told before, writes the stacks of its threads on this real-time signal
 * (docs/rank-agent.md); 0: not, or no longer. For the agent. May be called in a signal handler. */
FULLDECK_BOARD_API void fulldeck_board_stack_signal(fulldeck_board* board, int signal_number);

/* ---- loop ---- */

/* What the training loop does now. Other values are ignored. */
enum {
  FULLDECK_BOARD_STARTING = 1,      /* imports, arguments */
  FULLDECK_BOARD_INIT = 2,          /* devices, process groups, the model */
  FULLDECK_BOARD_LOADING = 3,       /* weights or a checkpoint are read */
  FULLDECK_BOARD_COMPILING = 4,     /* kernels or graphs are made; may take minutes */
  FULLDECK_BOARD_DATA = 5,          /* waits for the next batch */
  FULLDECK_BOARD_COMPUTE = 6,       /* forward, backward, optimizer */
  FULLDECK_BOARD_COMMUNICATION = 7, /* waits for other ranks */
  FULLDECK_BOARD_CHECKPOINT = 8,    /* a checkpoint is written */
  FULLDECK_BOARD_VALIDATION = 9,
  FULLDECK_BOARD_FINISHED = 10, /* no step will follow */
  FULLDECK_BOARD_OTHER_PHASE = 11,
};

FULLDECK_BOARD_API void fulldeck_board_phase(fulldeck_board* board, int phase);

/* Times are sums since the loop began, in nanoseconds; 0 where nothing was measured. */
typedef struct fulldeck_board_figures {
  uint32_t struct_bytes; /* sizeof(fulldeck_board_figures), so that the struct can grow at its end */
  uint32_t has_loss;     /* 0: `loss` means nothing */
  uint64_t step;         /* steps done; never falls within a run, so that a step that stands still can be seen */
  uint64_t total_steps;  /* 0: not known */
  uint64_t epoch;
  double loss;      /* NaN and infinities are told as they are */
  uint64_t samples; /* seen by this rank since the loop began */
  uint64_t data_ns;
  uint64_t compute_ns;
  uint64_t communication_ns;
  uint64_t checkpoint_ns;
  uint64_t batch_fingerprint;      /* of the inputs of this step; 0: not taken this time, the last one stands */
  uint64_t parameters_fingerprint; /* after this step; 0 as above. Equal on all ranks of a data-parallel group. */
  /* Sums since the loop began, of a model whose gradients the ranks reduce; 0: not told. */
  uint64_t reductions;      /* backward passes whose gradients were reduced over the ranks */
  uint64_t unreduced_steps; /* the most steps in a row that came without a reduction since the step before */
  uint64_t repeated_orders; /* epochs that were to be shuffled and began in the order of the epoch before */
} fulldeck_board_figures;

/* A step was done. When it was, and how long after the one before, is found out. 0, or -EINVAL: struct_bytes was not
 * set. */
FULLDECK_BOARD_API int fulldeck_board_step(fulldeck_board* board, const fulldeck_board_figures* figures);
/* Memory of the rank's card that this process holds, in bytes, and the most that it held. */
FULLDECK_BOARD_API void fulldeck_board_memory(fulldeck_board* board, uint64_t bytes_now, uint64_t bytes_peak);

/* A file of the training's was written, a checkpoint for example. `file` stands for it and is not 0: the same number on
 * two ranks of a host means that both wrote the same file. */
FULLDECK_BOARD_API void fulldeck_board_saved(fulldeck_board* board, uint64_t file);

/* Counts bytes of standard output or error that could not be written to the log file of this rank because its
 * disk is full. For the agent. Any thread; may be called in a signal handler. */
FULLDECK_BOARD_API void fulldeck_board_log_lost(fulldeck_board* board, uint64_t bytes);

/* ---- card ---- */

/* Whether the rank's card works for it now, as the launcher judges by the card's telemetry. */
enum {
  FULLDECK_BOARD_CARD_NOT_TOLD = 0, /* the rank has no card, or nobody watches it */
  FULLDECK_BOARD_CARD_UNKNOWN = 1,
  FULLDECK_BOARD_CARD_BUSY = 2,
  FULLDECK_BOARD_CARD_IDLE = 3,
};

/* Says that a probe of fulldeck's own computed on the rank's card and has ended now: what the card did so far is no
 * work of the program. Any thread; may be called in a signal handler. */
FULLDECK_BOARD_API void fulldeck_board_probed(fulldeck_board* board);

/* Of this rank; any thread. FULLDECK_BOARD_CARD_NOT_TOLD for a NULL board. */
FULLDECK_BOARD_API int fulldeck_board_card_use(const fulldeck_board* board);

/* ---- heartbeat ---- */

/* A sign of life of a thread other than the loop's: shows a process that runs while its loop waits. */
FULLDECK_BOARD_API void fulldeck_board_heartbeat(fulldeck_board* board);

/* ---- collective groups ---- */

enum { FULLDECK_BOARD_GROUPS = 8 }; /* as many groups of a rank are shown; a ninth works as well, unseen */

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
  FULLDECK_BOARD_MEETING = 13, /* the group is being made */
};

enum {
  FULLDECK_BOARD_NO_DATA = 0, /* a barrier, a meeting */
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

/* Takes a slot for a group of ranks. `group` is not 0 and the same on all its members; a group that has a slot gets the
 * same one again, begun anew when another process had it. `name`: for people, at most 15 bytes are kept. `size` ranks,
 * of which this is number `rank`. Makes a system call, and reads /proc when all slots are taken. The slot, or -ENOSPC
 * when all are taken, -EINVAL for an impossible argument or a NULL board. A negative slot is fine below: calls with it
 * do nothing. */
FULLDECK_BOARD_API int fulldeck_board_group_join(fulldeck_board* board, uint64_t group, const char* name, uint32_t size,
                                                 uint32_t rank);
/* The group is gone; its slot may be taken by another. */
FULLDECK_BOARD_API void fulldeck_board_group_leave(fulldeck_board* board, int slot);

typedef struct fulldeck_board_collective {
  uint32_t struct_bytes; /* sizeof(fulldeck_board_collective) */
  uint32_t operation;
  uint32_t datatype;
  int32_t root;         /* also the peer of a send or receive; -1: none */
  uint64_t count;       /* elements that this rank gives */
  uint64_t bytes;       /* that they take */
  uint64_t sequence;    /* number of the call in its group, the same on all members; 0: the board counts, from 1 */
  uint64_t fingerprint; /* what must be the same on all members; 0: made from operation, datatype, count and root (not
                           where ranks may differ in them: give one for uneven gathers, and for send and receive) */
} fulldeck_board_collective;

/* A call of the group begins; returns its number, which goes to the matching end. 0: nothing was written (no board, no
 * slot, struct_bytes not set), and an end with it does nothing. Several calls may be under way if they end in the order
 * in which they began. */
FULLDECK_BOARD_API uint64_t fulldeck_board_collective_begin(fulldeck_board* board, int slot,
                                                            const fulldeck_board_collective* call);
FULLDECK_BOARD_API void fulldeck_board_collective_end(fulldeck_board* board, int slot, uint64_t sequence);

/* ---- checks ---- */

/* What a rank observed of its own script, for the launcher's verdicts on silent errors (docs/python.md). What state,
 * value, count, step and text mean depends on the check; a check that was never observed counts as not known. */
enum {
  FULLDECK_BOARD_CHECK_GROUP = 0,      /* state 1: no process group so far, 2: one was formed; count: optimizer steps */
  FULLDECK_BOARD_CHECK_WEIGHTS = 1,    /* value of count tensors of a state dict fit; text: the module's class */
  FULLDECK_BOARD_CHECK_GRADIENTS = 2,  /* value of count trainable tensors never had a gradient in `step` sampled steps;
                                          text: names; state 1: gradients of zeros, 2: none, in too few steps to be
                                          certain */
  FULLDECK_BOARD_CHECK_LABELS = 3,     /* state 1: every label of count batches is `value`, 2: labels differ */
  FULLDECK_BOARD_CHECK_VALIDATION = 4, /* state 1: validation is made of training samples, 2: it is not, 3: the model
                                          ran on them, perhaps for another purpose; value of count samples */
  FULLDECK_BOARD_CHECK_CHILDREN = 5, /* count children failed; value: the first one's exit status; text: its command */
  FULLDECK_BOARD_CHECK_DEVICE = 6,   /* state 1: the optimizer's parameters are on the CPU, 2: on `text` */
  FULLDECK_BOARD_CHECK_FINITE = 7,   /* state 1: gradients, 2: the loss, 3: parameters were NaN or Inf, first in
                                        `step` */
  FULLDECK_BOARD_CHECK_RANDOM = 8,   /* value: hash of the random state before step 2; state 1: every rank should have
                                        its own */
  FULLDECK_BOARD_CHECK_VISIBILITY =
      9,                              /* state 1: the script changed which cards it sees, and left its own; text: how */
  FULLDECK_BOARD_CHECK_DISABLED = 10, /* count checks failed themselves and are off; text: which, and why */
  FULLDECK_BOARD_CHECK_MODULES = 11,  /* count modules in use have a vendor's name, and no package installed them;
                                         text: the first one's file */
  FULLDECK_BOARD_CHECKS = 12
};

/* Writes all of a check's figures. `text`: at most 79 bytes are kept; NULL for none. Other checks are ignored. */
FULLDECK_BOARD_API void fulldeck_board_observe(fulldeck_board* board, int check, uint32_t state, uint64_t value,
                                               uint64_t count, uint64_t step, const char* text);

/* ---- error ---- */

/* The last thing that went wrong in this rank, for people: UTF-8, cut after 415 bytes at the end of a character. When
 * two threads come at once, one of them may be lost. */
FULLDECK_BOARD_API void fulldeck_board_set_error(fulldeck_board* board, const char* text);

/* What kind of failure it is. The launcher follows these codes, never the text, to the rank that began. */
enum {
  FULLDECK_BOARD_FAILURE_OTHER = 1,
  FULLDECK_BOARD_FAILURE_PEER_LOST = 2,       /* another rank died or left while this one still needed it */
  FULLDECK_BOARD_FAILURE_DIFFERENT_CALLS = 3, /* the ranks of a group made different calls */
  FULLDECK_BOARD_FAILURE_NONFINITE = 4,       /* a rank gave a value that is not finite */
  FULLDECK_BOARD_FAILURE_TIMEOUT = 5,         /* another rank did not arrive in time */
};

/* The same with its kind and the rank that began: RANK of the one that left, made the odd call, gave the value or did
 * not arrive, which may be this rank itself; -1: not known. */
FULLDECK_BOARD_API void fulldeck_board_set_failure(fulldeck_board* board, uint32_t code, int culprit, const char* text);

#ifdef __cplusplus
}
#endif

#endif
