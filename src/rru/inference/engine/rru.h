/* Run a model that was trained with rru, one step at a time.
 *
 * C99. No dependencies, no libc, no threads; no memory but what you give to rru_init.
 *
 *     rru_status status;
 *     size_t bytes = rru_size(blob, blob_bytes, &status);          // 0 if the blob cannot be used
 *     rru_model *model = rru_init(blob, blob_bytes, memory, bytes, &status);
 *     const float *logits = rru_step(model, input);                // a step of features
 *     rru_reset(model);                                            // before the next sequence
 *
 * The blob stays where it is (flash, a mapped file) and must be aligned to 8 bytes and outlive the model. One model is
 * one sequence: for another, call rru_init again with other memory. A model must not be used by two threads at once.
 */
#ifndef RRU_H
#define RRU_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rru_model rru_model;

typedef enum {
  RRU_OK,
  RRU_NOT_A_MODEL,   /* the blob does not begin as a model does */
  RRU_OTHER_VERSION, /* it was written by another version of rru */
  RRU_TRUNCATED,     /* it has fewer bytes than it should have */
  RRU_DAMAGED,       /* its checksum is wrong */
  RRU_MALFORMED,     /* its tensors are not those of a model */
  RRU_MISALIGNED,    /* the blob is not aligned to 8 bytes, or this processor is not little-endian */
  RRU_NO_ROOM        /* the memory has fewer bytes than rru_size says */
} rru_status;

/* Return what a status means, as a sentence. */
const char *rru_message(rru_status status);

/* What a model is, in the order in which the blob has these numbers. */
typedef enum {
  RRU_KIND,    /* an rru_kind */
  RRU_CELL,    /* 0 RRU, 1 GRU, 2 LSTM, 3 Mogrifier LSTM */
  RRU_LAYERS,  /* stacked layers */
  RRU_INPUTS,  /* features of a step, or of an embedded token */
  RRU_HIDDEN,  /* features of the state of a layer */
  RRU_OUTPUTS, /* features of the output of a layer */
  RRU_OPTION,  /* RRU: ReLU layers; GRU: whether the reset gate acts after the product; Mogrifier: rounds */
  RRU_NORMALIZE, /* RRU: whether Eq. 1 normalizes; Mogrifier: rank, 0 for full matrices */
  RRU_ACTIVATE,  /* RRU: whether Eq. 4 and 6 have a ReLU */
  RRU_TOKENS,    /* size of the vocabulary; 0 if a step has features */
  RRU_HEAD,      /* 0 none, 1 linear, 2 linear on the state, 3 chain, 4 NADE, 5 forecasts, 6 tied */
  RRU_LOGITS,    /* outputs of the model: what rru_step returns */
  RRU_KEYS,      /* music: keys; the outputs after the first so many, with tied all, are for rru_chord */
  RRU_READING,   /* how a program should divide a text into steps, an rru_reading */
  RRU_PADDING,   /* tokens that are never written */
  RRU_UNKNOWN,
  RRU_FIRST,     /* music: MIDI note of the first key */
  RRU_BEAT,      /* music: steps in a quarter note */
  RRU_SCALED,    /* whether features of a step are scaled by rru_scale */
  RRU_NAMES,     /* number of names: of all tokens, then of all classes or series; see rru_name */
  RRU_MEMBERS,   /* series: models in the ensemble */
  RRU_CONTEXT,   /* series: known steps in a window */
  RRU_HORIZON,   /* series: steps that are forecast */
  RRU_PATCH,     /* series: steps that the layers read at once */
  RRU_SEASON,    /* series: steps after which a pattern repeats */
  RRU_PAST,      /* series: inputs of a step that are not known in advance */
  RRU_KNOWN,     /* series: inputs of a step that are */
  RRU_SERIES,    /* series that it was trained on */
  RRU_AROUND,    /* tied: keys to each side that a key sees of the last step */
  RRU_BELOW,     /* tied: keys below that it sees of its chord */
  RRU_CHORD_HIDDEN,  /* tied: features of the state of the network over keys, */
  RRU_CHORD_OUTPUTS, /* and of its output */
  RRU_BAR,           /* tied: steps in a bar, if the model knows the place of a step in it */
  RRU_NUMBERS    /* how many numbers there are */
} rru_field;

typedef enum { RRU_OF_LAYERS, RRU_OF_MUSIC, RRU_OF_TEXT, RRU_OF_CLASSES, RRU_OF_SERIES } rru_kind;

typedef enum {
  RRU_NUMBERS_OF_STEP, /* the features of a step */
  RRU_NOTES,           /* the MIDI notes of a step */
  RRU_WORDS,           /* words between spaces */
  RRU_MARKED_WORDS,    /* words, and each punctuation mark */
  RRU_CHARACTERS,      /* characters, with _ for a space */
  RRU_CODE_POINTS,     /* characters */
  RRU_BYTES,           /* bytes of UTF-8 */
  RRU_LOWER_WORDS      /* words in lower case, without punctuation */
} rru_reading;

/* Return the bytes that rru_init needs, or 0 and why in `status`. The memory may have any alignment. */
size_t rru_size(const void *blob, size_t blob_bytes, rru_status *status);

/* Make a model in `memory`, ready for its first step; NULL and why in `status` if that is not possible. */
rru_model *rru_init(const void *blob, size_t blob_bytes, void *memory, size_t memory_bytes, rru_status *status);

/* Begin another sequence. */
void rru_reset(rru_model *model);

/* Run a step on RRU_INPUTS features, or on a token; return RRU_LOGITS numbers, valid until the next call. Those of a
 * tied model are RRU_OUTPUTS for each key, one key after another: what the network over time says about it.
 * A token outside the vocabulary is read as the unknown one. A model of the other kind of input returns NULL. */
const float *rru_step(rru_model *model, const float *input);
const float *rru_step_token(rru_model *model, uint32_t token);

/* The same in two parts: rru_read only changes the state, rru_predict computes the outputs after the last step. Both
 * return 0 or NULL where rru_step would return NULL. */
int rru_read(rru_model *model, const float *input);
int rru_read_token(rru_model *model, uint32_t token);
const float *rru_predict(rru_model *model);

int32_t rru_number(const rru_model *model, rru_field field);

/* Return the state, to keep it or to put it back: RRU_LAYERS times h, and for the LSTMs c, of RRU_HIDDEN each; of a tied
 * model, each of them for all keys, and with RRU_BAR the place of the next step in its bar. */
float *rru_state(rru_model *model, size_t *count);

/* Return the name of a token, class or series, and its bytes in `length`: UTF-8, not ended by zero. NULL if there is
 * none. */
const char *rru_name(const rru_model *model, uint32_t index, size_t *length);

/* Make the features of a step from RRU_INPUTS values in the units of the training data. NaN is missing. */
void rru_scale(const rru_model *model, const double *values, float *features);

/* Set the seed of what is drawn below. The same seed gives the same music and text on every machine. */
void rru_seed(rru_model *model, uint32_t seed);

/* Draw a number from 0 to below 1. */
double rru_random(rru_model *model);

/* After rru_step, of a model of classes, text, or music with independent keys: the probability of each output. Other
 * music: of each of RRU_KEYS, if no key before it is on. */
void rru_chances(rru_model *model, float *chances);

/* After rru_step, text: draw the next token. `temperature`: one below 0.01, such as 0, is taken as 0.01, which nearly
 * always draws the likeliest. `most`: among so many of the likeliest; 0 for all. */
uint32_t rru_token(rru_model *model, float temperature, uint32_t most);

/* After rru_step, music: draw the keys of the next step, 0 or 1 for each of RRU_KEYS; return how many are on.
 * `voices`: so many if that is likely enough; 0 for as many as the model draws. */
int rru_chord(rru_model *model, float temperature, int voices, uint8_t *chord);

/* After rru_step, music: return -log of the probability that the next step has exactly these of RRU_KEYS keys. */
double rru_nats(rru_model *model, const uint8_t *chord);

/* How the values of a series are scaled: ((floor > 0 ? log(max(value, floor)) : value) - centre) / unit. */
typedef struct {
  double floor;  /* 0 for no logarithm */
  double centre, unit;
  double least;  /* no forecast is below it; -HUGE_VAL or NaN for none */
  float width;   /* of the intervals, 1 for the usual one */
} rru_scaling;

/* Return the scaling of a series that the model was trained on. */
rru_scaling rru_scaling_of(const rru_model *model, uint32_t series);

/* Forecast a series; return 0 if it has no known value, or the model is not one of series.
 *
 * `values`: (count,), the series so far; missing values are NaN, and are filled in place.
 * `inputs`: (RRU_CONTEXT + RRU_HORIZON, RRU_PAST + RRU_KNOWN), in the units of the file: of the last steps, which end
 *           with the last value, and of those to be forecast. NaN, or NULL for all, is the mean.
 * `quantiles`: (RRU_HORIZON, 5): 2.5, 10, 50, 90 and 97.5 %. */
int rru_forecast(rru_model *model, const rru_scaling *scaling, double *values, size_t count, const float *inputs,
                 double *quantiles);

#ifdef __cplusplus
}
#endif
#endif
