/* Read lines from standard input and print what the model predicts after each.
 *
 *     ./main [model.rru]             text, words, numbers or MIDI notes, whichever the model reads; see README.md
 *     ./main [model.rru] --bench     print the bytes it takes and the microseconds of a step
 *     ./main [model.rru] --array     print the model as C, for devices without files
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rru.h"

#define SHOWN 3
#define LONGEST 65536 /* bytes of a line */
#define SAMPLES 1000  /* chords: a joint output has no closed form for the probability of a note */

static rru_model *model;
static float *chances, *features;
static uint8_t *chord;
static int32_t steps; /* since the beginning */

static int32_t number(rru_field field) { return rru_number(model, field); }

static void fail(const char *what, const char *why) {
  fprintf(stderr, "error: %s: %s\n", what, why);
  exit(1);
}

static void *reserve(size_t bytes) {
  void *memory = malloc(bytes ? bytes : 1);
  if (!memory) fail("memory", "there is not enough");
  return memory;
}

static void *read_file(const char *path, size_t *bytes) {
  FILE *file = fopen(path, "rb");
  void *content;
  long size;
  if (!file) fail(path, "cannot be opened");
  size = fseek(file, 0, SEEK_END) ? -1 : ftell(file);
  if (size < 0 || fseek(file, 0, SEEK_SET)) fail(path, "cannot be read");
  *bytes = (size_t)size;
  content = reserve(*bytes);
  if (fread(content, 1, *bytes, file) != *bytes) fail(path, "cannot be read");
  fclose(file);
  return content;
}

static void print_name(uint32_t index) {
  size_t length;
  const char *name = rru_name(model, index, &length);
  if (number(RRU_KIND) != RRU_OF_TEXT)
    printf("%.*s", (int)length, name);
  else if (length == 1 && name[0] == '\n')
    printf("'\\n'");
  else
    printf("'%.*s'", (int)length, name);
}

/* Print the `most` likeliest outputs of at least `least`. */
static void print_likeliest(int32_t count, int most, double least) {
  int shown;
  for (shown = 0; shown < most; ++shown) {
    int32_t best = 0, i;
    for (i = 1; i < count; ++i)
      if (chances[i] > chances[best]) best = i;
    if (chances[best] < least || chances[best] < 0) break;
    printf(shown ? ", " : "");
    if (number(RRU_KIND) == RRU_OF_MUSIC)
      printf("%d", number(RRU_FIRST) + best);
    else
      print_name((uint32_t)(number(RRU_KIND) == RRU_OF_TEXT ? best : number(RRU_TOKENS) + best));
    printf(" %.0f%%", 100 * (double)chances[best]);
    chances[best] = -1;
  }
  printf(shown ? "\n" : "nothing\n");
}

/* ---------------------------------------------------------------- text */

static uint32_t token_of(const char *text, size_t length) {
  uint32_t i;
  for (i = 0; i < (uint32_t)number(RRU_TOKENS); ++i) {
    size_t known;
    const char *name = rru_name(model, i, &known);
    if (known == length && !memcmp(name, text, length)) return i;
  }
  return (uint32_t)number(RRU_UNKNOWN);
}

static int is_letter(const char *at) { return isalnum((unsigned char)*at) || (unsigned char)*at >= 128; }

/* Return the bytes of a word: letters and digits, with single marks inside. Bytes of other alphabets are letters. */
static size_t word(const char *at, const char *inside) {
  size_t length = 0;
  while (is_letter(at + length) || (length && at[length] && strchr(inside, at[length]) && is_letter(at + length + 1)))
    ++length;
  return length;
}

/* Return the bytes of the next token, after skipping what is none; 0 at the end. */
static size_t next_token(char **at) {
  const int32_t reading = number(RRU_READING);
  size_t length = 1, i;
  if (reading == RRU_WORDS || reading == RRU_MARKED_WORDS)
    while (isspace((unsigned char)**at)) ++*at;
  if (reading == RRU_LOWER_WORDS)
    while (**at && !is_letter(*at)) ++*at;
  if (!**at) return 0;
  if (reading == RRU_WORDS) return strcspn(*at, " \t\r\n\v\f");
  if (reading == RRU_MARKED_WORDS) return (length = word(*at, "'-_")) ? length : 1;
  if (reading == RRU_LOWER_WORDS) {
    length = word(*at, "'");
    for (i = 0; i < length; ++i) (*at)[i] = (char)tolower((unsigned char)(*at)[i]);
    return length;
  }
  if (reading == RRU_CHARACTERS && **at == ' ') **at = '_';
  if (reading != RRU_BYTES)
    while (((unsigned char)(*at)[length] & 0xc0) == 0x80) ++length;
  return length;
}

static void read_text(char *line) {
  double bits = 0;
  int32_t count = 0;
  size_t length;
  while ((length = next_token(&line)) > 0) {
    const uint32_t token = token_of(line, length);
    const double chance = steps ? (double)chances[token] : 1.0 / number(RRU_TOKENS);
    double power = chance > 1e-37 ? chance : 1e-37;
    while (power < 1) power *= 2, bits += 1; /* the whole part of -log2, then 20 bits after the point */
    for (double half = 0.5; half > 1e-6; half /= 2) {
      power *= power;
      if (power >= 2) power /= 2, bits -= half;
    }
    rru_step_token(model, token);
    rru_chances(model, chances);
    ++steps, ++count;
    line += length;
  }
  if (!count) return;
  printf("%.2f bits per token; next ", bits / count);
  print_likeliest(number(RRU_LOGITS), SHOWN, 0);
  rru_chances(model, chances);
}

/* ---------------------------------------------------------------- classes, music, layers */

static void print_outputs(void) {
  const float *outputs = rru_predict(model);
  int32_t i;
  if (number(RRU_KIND) == RRU_OF_CLASSES) {
    rru_chances(model, chances);
    print_likeliest(number(RRU_LOGITS), SHOWN, 0);
    return;
  }
  for (i = 0; i < number(RRU_LOGITS); ++i) printf(i ? " %.6g" : "%.6g", (double)outputs[i]);
  printf("\n");
}

static void read_words(char *line) {
  size_t length;
  while ((length = next_token(&line)) > 0) {
    rru_read_token(model, token_of(line, length));
    line += length;
    ++steps;
  }
  if (steps) print_outputs();
}

/* Read numbers, as many as a step has, or those of several steps. */
static void read_numbers(char *line, double *values) {
  int32_t count = 0;
  while (*line) {
    char *end;
    const double value = strtod(line, &end);
    if (end == line) {
      if (!isspace((unsigned char)*line) && *line != ',')
        fail("line", "must have numbers, separated by commas or spaces");
      ++line;
      continue;
    }
    values[count] = value;
    line = end;
    if (++count == number(RRU_INPUTS)) {
      rru_scale(model, values, features);
      rru_read(model, features);
      count = 0;
    }
  }
  if (count) fail("line", "must have as many numbers as a step has inputs, or those of several steps");
  print_outputs();
}

static void read_notes(char *line) {
  const int32_t keys = number(RRU_KEYS), first = number(RRU_FIRST);
  int32_t i, sample;
  char *end;
  for (i = 0; i < keys; ++i) features[i] = 0;
  for (;; line = end) {
    const long note = strtol(line, &end, 10);
    if (end == line) break;
    if (note < first || note >= first + keys)
      fail("line", "must have MIDI notes that the model has, separated by spaces");
    features[note - first] = 1;
  }
  while (isspace((unsigned char)*end)) ++end;
  if (*end) fail("line", "must have MIDI notes, separated by spaces");
  rru_step(model, features);
  if (number(RRU_HEAD) > 2) {
    for (i = 0; i < keys; ++i) chances[i] = 0;
    rru_seed(model, 0);
    for (sample = 0; sample < SAMPLES; ++sample) {
      rru_chord(model, 1, 0, chord);
      for (i = 0; i < keys; ++i) chances[i] += (float)chord[i] / SAMPLES;
    }
  } else {
    rru_chances(model, chances);
  }
  printf("next ");
  print_likeliest(keys, keys, 0.05);
}

/* ---------------------------------------------------------------- series */

/* Read a value in each line, and after it the inputs of its step; the last lines may have inputs and no value. */
static void forecast(const char *name) {
  const int32_t inputs = number(RRU_PAST) + number(RRU_KNOWN), horizon = number(RRU_HORIZON);
  const int32_t window = number(RRU_CONTEXT) + horizon;
  const double nothing = strtod("nan", NULL);
  size_t room = 1024, count = 0, known = 0, row, i;
  double *values = reserve(room * sizeof(double)), *quantiles = reserve((size_t)horizon * 5 * sizeof(double));
  float *given = reserve(room * (size_t)(inputs + 1) * sizeof(float)), *of_window;
  char *line = reserve(LONGEST), *at, *end;
  uint32_t series = 0;
  rru_scaling scaling;
  while (fgets(line, LONGEST, stdin)) {
    if (count == room) {
      room *= 2;
      values = realloc(values, room * sizeof(double));
      given = realloc(given, room * (size_t)(inputs + 1) * sizeof(float));
      if (!values || !given) fail("memory", "there is not enough");
    }
    values[count] = strtod(line, &end);
    if (end == line) values[count] = nothing;
    for (i = 0; i < (size_t)inputs; ++i) {
      at = strchr(end, ',');
      given[count * (size_t)inputs + i] = (float)(at ? strtod(at + 1, &end) : nothing);
      if (at && end == at + 1) given[count * (size_t)inputs + i] = (float)nothing;
      if (!at) end = strchr(end, 0);
    }
    if (values[count] == values[count]) known = count + 1;
    ++count;
  }
  while (name && series < (uint32_t)number(RRU_SERIES)) {
    size_t length;
    const char *of = rru_name(model, series, &length);
    if (strlen(name) == length && !memcmp(name, of, length)) break;
    ++series;
  }
  if (series == (uint32_t)number(RRU_SERIES)) fail(name, "is not a series that the model was trained on");
  of_window = reserve((size_t)window * (size_t)(inputs + 1) * sizeof(float));
  for (row = 0; row < (size_t)window; ++row) {
    size_t from = row + known >= (size_t)number(RRU_CONTEXT) ? row + known - (size_t)number(RRU_CONTEXT) : 0;
    for (i = 0; i < (size_t)inputs; ++i)
      of_window[row * (size_t)inputs + i] = from < count ? given[from * (size_t)inputs + i] : (float)nothing;
  }
  scaling = rru_scaling_of(model, series);
  if (!rru_forecast(model, &scaling, values, known, of_window, quantiles)) fail("series", "must have a known value");
  printf("forecast low_80 high_80 low_95 high_95\n");
  for (row = 0; row < (size_t)horizon; ++row) {
    const double *q = quantiles + 5 * row;
    printf("%.8g %.8g %.8g %.8g %.8g\n", q[2], q[1], q[3], q[0], q[4]);
  }
}

/* ---------------------------------------------------------------- all */

static void step_once(uint32_t at, double *values, double *quantiles) {
  const rru_scaling scaling = rru_scaling_of(model, 0);
  if (number(RRU_KIND) == RRU_OF_SERIES) {
    rru_forecast(model, &scaling, values, (size_t)number(RRU_CONTEXT), NULL, quantiles);
  } else if (number(RRU_TOKENS)) {
    rru_step_token(model, at % (uint32_t)number(RRU_TOKENS));
  } else {
    if (number(RRU_KIND) == RRU_OF_MUSIC) features[at % (uint32_t)number(RRU_INPUTS)] = (float)(at / 4 % 2);
    rru_step(model, features);
  }
}

static void bench(size_t model_bytes, size_t memory_bytes) {
  const size_t context = (size_t)number(RRU_CONTEXT) + 1;
  double *values = reserve(context * sizeof(double)), *quantiles = reserve((size_t)number(RRU_HORIZON) * 40 + 1);
  double best = 1e30;
  uint32_t count = 1, i;
  size_t state;
  int round;
  for (i = 0; i < context; ++i) values[i] = 1 + (double)(i % 7);
  for (i = 0; i < (uint32_t)number(RRU_INPUTS); ++i) features[i] = number(RRU_KIND) == RRU_OF_MUSIC ? 0 : 0.5f;
  for (round = 0; round < 30; ++round) {
    const clock_t start = clock();
    double seconds;
    for (i = 0; i < count; ++i) step_once(i, values, quantiles);
    seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    if (seconds < 0.01 && count < 1u << 24)
      count *= 2, round = -1;
    else if (seconds / count < best)
      best = seconds / count;
  }
  rru_state(model, &state);
  printf("weights %lu bytes\nmemory %lu bytes\nstate %lu bytes\n", (unsigned long)model_bytes,
         (unsigned long)memory_bytes, (unsigned long)(state * sizeof(float)));
  printf("step %.2f microseconds\n", best * 1e6);
}

static void print_array(const uint32_t *words, size_t bytes, size_t memory_bytes) {
  size_t i;
  printf("/* A model of rru: rru_init(model, %lu, memory, %lu, &status) */\n", (unsigned long)bytes,
         (unsigned long)memory_bytes);
  printf("#include <stdint.h>\n\nconst union {\n  uint32_t words[%lu];\n  double alignment;\n} model = {{",
         (unsigned long)(bytes / 4));
  for (i = 0; i < bytes / 4; ++i) printf("%s0x%08lxu,", i % 8 ? " " : "\n    ", (unsigned long)words[i]);
  printf("\n}};\n");
}

int main(int count, char **arguments) {
  const char *path = "model.rru", *option = "";
  size_t bytes, memory_bytes;
  rru_status status;
  void *blob, *memory;
  char *line = reserve(LONGEST);
  double *values;
  int i;
  for (i = 1; i < count; ++i) {
    if (arguments[i][0] == '-')
      option = arguments[i] + 2;
    else
      path = arguments[i];
  }
  blob = read_file(path, &bytes);
  memory_bytes = rru_size(blob, bytes, &status);
  if (!memory_bytes) fail(path, rru_message(status));
  memory = reserve(memory_bytes);
  model = rru_init(blob, bytes, memory, memory_bytes, &status);
  if (!model) fail(path, rru_message(status));
  chances = reserve((size_t)number(RRU_LOGITS) * sizeof(float));
  features = reserve((size_t)number(RRU_INPUTS) * sizeof(float));
  values = reserve((size_t)number(RRU_INPUTS) * sizeof(double));
  chord = reserve((size_t)number(RRU_KEYS));
  if (!strcmp(option, "bench")) {
    bench(bytes, memory_bytes);
  } else if (!strcmp(option, "array")) {
    print_array(blob, bytes, memory_bytes);
  } else if (number(RRU_KIND) == RRU_OF_SERIES) {
    forecast(!strncmp(option, "series=", 7) ? option + 7 : NULL);
  } else {
    while (fgets(line, LONGEST, stdin)) {
      if (number(RRU_KIND) != RRU_OF_TEXT && number(RRU_KIND) != RRU_OF_MUSIC && !line[strspn(line, " \t\r\n")]) {
        rru_reset(model); /* an empty line begins another sequence */
        steps = 0;
      } else if (number(RRU_KIND) == RRU_OF_TEXT) {
        read_text(line);
      } else if (number(RRU_TOKENS)) {
        read_words(line);
      } else if (number(RRU_READING) == RRU_NOTES) {
        read_notes(line);
      } else {
        read_numbers(line, values);
      }
      fflush(stdout);
    }
  }
  return 0;
}
