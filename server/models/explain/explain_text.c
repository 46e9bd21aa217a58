/* Prints an explanation for people: a table of nodes as wide as the terminal, and what the model
 * takes. */
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "server/memory/text.h"
#include "server/models/explain/explain.h"

enum {
    NUMBER_BYTES = 32, /* of a number of 64 bits with a comma for each three digits */
    COLUMN_COUNT = 5,
    OPERATOR_MAX = 26,
    PADDED_MAX = 64,  /* if names are printed whole */
    COLUMNS_MIN = 60, /* has room for the numbers of large networks and 10 columns of each text */
    COLUMNS_DEFAULT = 100,
    LABEL_COLUMNS = 17,
    REFUSALS_MAX = 8, /* reasons that are printed */
};

/* ---- Texts --------------------------------------------------------------------------------- */

/* Prints a number with commas. */
static const char *print_number(uint64_t number, char text[NUMBER_BYTES])
{
    char digits[NUMBER_BYTES];
    const int count = snprintf(digits, sizeof(digits), "%" PRIu64, number);
    char *to = text;
    for (int i = 0; i < count; i++) {
        if (i > 0 && (count - i) % 3 == 0)
            *to++ = ',';
        *to++ = digits[i];
    }
    *to = '\0';
    return text;
}

/* Returns the bytes of the character at the start of a text of `bytes` bytes, and whether a
 * terminal shows it. */
static size_t next_character(const char *text, size_t bytes, bool *is_shown)
{
    enum { UTF8_BYTES_MAX = 4 };
    const size_t length = qd_utf8_length(text, bytes < UTF8_BYTES_MAX ? bytes : UTF8_BYTES_MAX);
    *is_shown = length > 0 && !qd_is_control(qd_utf8_decode(text, length));
    return length > 0 ? length : 1;
}

static size_t columns_of_bytes(const char *text, size_t bytes)
{
    size_t columns = 0;
    bool is_shown;
    for (size_t at = 0; at < bytes; columns++)
        at += next_character(text + at, bytes - at, &is_shown);
    return columns;
}

static size_t columns_of(const char *text)
{
    return columns_of_bytes(text, strlen(text));
}

/* Returns the bytes of the first `columns` characters. */
static size_t bytes_of_columns(const char *text, size_t bytes, size_t columns)
{
    size_t at = 0;
    bool is_shown;
    for (; columns > 0 && at < bytes; columns--)
        at += next_character(text + at, bytes - at, &is_shown);
    return at;
}

/* Prints a text. Characters that a terminal may obey become '?'. */
static void print_bytes(FILE *out, const char *text, size_t bytes)
{
    size_t length;
    for (size_t at = 0; at < bytes; at += length) {
        bool is_shown;
        length = next_character(text + at, bytes - at, &is_shown);
        if (is_shown)
            fwrite(text + at, 1, length, out);
        else
            fputc('?', out);
    }
}

/* Prints words behind a label. Lines are broken between words. */
static void print_words(FILE *out, const char *label, const char *text, size_t columns)
{
    size_t at = LABEL_COLUMNS;
    fprintf(out, "%-*s", LABEL_COLUMNS, label);
    for (bool is_first = true; *text != '\0'; is_first = false) {
        const size_t bytes = strcspn(text, " ");
        const size_t wide = columns_of_bytes(text, bytes);
        if (!is_first && at + 1 + wide > columns) {
            fprintf(out, "\n%*s", LABEL_COLUMNS, "");
            at = LABEL_COLUMNS;
        } else if (!is_first) {
            fputc(' ', out);
            at++;
        }
        print_bytes(out, text, bytes);
        at += wide;
        text += bytes + (text[bytes] == ' ');
    }
    fputc('\n', out);
}

static void print_format(FILE *out, size_t columns, const char *label, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static void print_format(FILE *out, size_t columns, const char *label, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    print_words(out, label, text, columns);
}

/* ---- Texts that are cut -------------------------------------------------------------------- */

/* A text, or what is left of it, with ".." where something is missing. */
struct piece {
    const char *before;
    const char *text;
    size_t bytes;
    const char *behind;
};

static size_t columns_of_piece(const struct piece *piece)
{
    return strlen(piece->before) + columns_of_bytes(piece->text, piece->bytes) +
           strlen(piece->behind);
}

/* Cuts the begin of a text that is too long, because names of a network differ at their ends. Also
 * removes separators behind the cut. */
static void cut_begin(struct piece *piece, size_t columns)
{
    const size_t all = columns_of_piece(piece);
    if (all <= columns)
        return;
    piece->before = "..";
    const size_t skip =
        bytes_of_columns(piece->text, piece->bytes, all - columns + strlen(piece->before));
    piece->text += skip;
    piece->bytes -= skip;
    for (; piece->bytes > 1 && strchr("./_", *piece->text) != NULL; piece->bytes--)
        piece->text++;
}

/* Cuts the end of a text that is too long, and removes blanks and commas before the cut. */
static void cut_end(struct piece *piece, size_t columns)
{
    if (columns_of_piece(piece) <= columns)
        return;
    piece->behind = "..";
    piece->bytes = bytes_of_columns(piece->text, piece->bytes, columns - strlen(piece->behind));
    while (piece->bytes > 0 && strchr(" ,", piece->text[piece->bytes - 1]) != NULL)
        piece->bytes--;
}

/* Cuts a node's name. Quantizers add the operator to the name of a value, as in x_QuantizeLinear. A
 * name that is too long loses this ending first: the operator has a column. */
static void cut_name(struct piece *name, const char *operator_name, size_t columns)
{
    const size_t cut = strlen(operator_name);
    if (columns_of_piece(name) <= columns)
        return;
    if (name->bytes > cut + 1 && name->text[name->bytes - cut - 1] == '_' &&
        memcmp(name->text + name->bytes - cut, operator_name, cut) == 0) {
        name->bytes -= cut;
        name->behind = "..";
    }
    cut_begin(name, columns);
}

/* Prints a text, filled up with blanks to so many columns. */
static void print_piece(FILE *out, const struct piece *piece, size_t columns, bool to_the_right)
{
    const size_t own = columns_of_piece(piece);
    const int blanks = own < columns ? (int)(columns - own) : 0;
    fprintf(out, "%*s%s", to_the_right ? blanks : 0, "", piece->before);
    print_bytes(out, piece->text, piece->bytes);
    fprintf(out, "%s%*s", piece->behind, to_the_right ? 0 : blanks, "");
}

/* ---- Nodes --------------------------------------------------------------------------------- */

enum column { INDEX, OPERATOR, NAME, BECOMES, PRODUCTS };
static const char *const titles[] = {"node", "operator", "name", "becomes", "products"};
#define BETWEEN "  "

/* The texts of a row. */
struct row {
    char index[NUMBER_BYTES];
    char becomes[160];
    char products[NUMBER_BYTES];
    const char *cells[COLUMN_COUNT];
};

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Returns the operator's name without its domain. */
static const char *bare_name(const char *operator_name)
{
    const char *point = strrchr(operator_name, '.');
    return point == NULL ? operator_name : point + 1;
}

/* Prints what became of a node. If the node runs as the operator that it is, prints only what
 * follows the operator in QD_FATE_LIST, such as "moves nothing". */
static void print_fate(const struct qd_onnx_listed *node, char *text, size_t size)
{
    static const char *const fates[] = {
#define X(name, json, words) words,
        QD_FATE_LIST(X)
#undef X
    };
    const char *format = fates[node->fate];
    const char *place = strchr(format, '%');
    const char *runs_as = node->runs_as == NULL ? "" : bare_name(node->runs_as);
    if (place == NULL)
        snprintf(text, size, "%s", format);
    else if (place[1] == 'u')
        snprintf(text, size, "%.*s%u", (int)(place - format), format, node->into);
    else if (strcmp(runs_as, bare_name(node->operator_name)) == 0) /* skips "%s" and a comma */
        snprintf(text, size, "%s", place + 2 + strspn(place + 2, ", "));
    else
        snprintf(text, size, "%s%s", runs_as, place + 2);
}

/* Makes the texts of a node. Only a row that is printed whole has the operator's domain. If the
 * file is refused, says of a node only whether it is a reason. */
static void make_row(const struct qd_explanation *explanation, size_t index, bool is_whole,
                     struct row *row)
{
    const struct qd_onnx_listed *node = &explanation->list->nodes[index];
    snprintf(row->index, sizeof(row->index), "%zu", index);
    row->becomes[0] = '\0';
    if (explanation->signature != NULL || node->fate == QD_FATE_REFUSED)
        print_fate(node, row->becomes, sizeof(row->becomes));
    row->products[0] = '\0';
    if (node->multiplications > 0)
        print_number(node->multiplications, row->products);
    row->cells[INDEX] = row->index;
    row->cells[OPERATOR] = is_whole ? node->operator_name : bare_name(node->operator_name);
    row->cells[NAME] = node->name;
    row->cells[BECOMES] = row->becomes;
    row->cells[PRODUCTS] = row->products;
}

/* Finds the widths of the columns. A column without texts has width 0, and is not printed. If rows
 * would be wider than `columns`, makes columns narrower, first that of the names. If `columns` is
 * 0, all texts are printed whole, and a text that is wider than its column shifts the rest of its
 * row. */
static void measure(const struct qd_explanation *explanation, size_t columns,
                    size_t widths[COLUMN_COUNT])
{
    /* Each step narrows one column, to no less than this. */
    static const struct {
        enum column column;
        size_t least;
    } steps[] = {{NAME, 20}, {OPERATOR, 16}, {NAME, 12},    {BECOMES, 13},
                 {NAME, 8},  {BECOMES, 9},   {OPERATOR, 8}, {BECOMES, 7}};
    struct row row;
    memset(widths, 0, COLUMN_COUNT * sizeof(*widths));
    for (size_t i = 0; i < explanation->list->count; i++) {
        make_row(explanation, i, columns == 0, &row);
        for (size_t k = 0; k < COLUMN_COUNT; k++)
            widths[k] = larger(widths[k], columns_of(row.cells[k]));
    }
    widths[OPERATOR] = smaller(widths[OPERATOR], columns == 0 ? PADDED_MAX : OPERATOR_MAX);
    widths[NAME] = smaller(widths[NAME], columns == 0 ? PADDED_MAX : columns);
    size_t all = 0;
    for (size_t k = 0; k < COLUMN_COUNT; k++) {
        widths[k] = widths[k] == 0 ? 0 : larger(widths[k], strlen(titles[k]));
        all += widths[k] == 0 ? 0 : widths[k] + (k == 0 ? 0 : strlen(BETWEEN));
    }
    for (size_t i = 0; columns > 0 && i < sizeof(steps) / sizeof(*steps) && all > columns; i++) {
        size_t *width = &widths[steps[i].column];
        const size_t spare = *width > steps[i].least ? *width - steps[i].least : 0;
        const size_t taken = smaller(spare, all - columns);
        *width -= taken;
        all -= taken;
    }
}

static void print_row(FILE *out, const char *const cells[COLUMN_COUNT],
                      const size_t widths[COLUMN_COUNT], bool is_whole)
{
    size_t last = COLUMN_COUNT - 1;
    while (last > 0 && *cells[last] == '\0')
        last--;
    for (size_t k = 0; k <= last; k++) {
        if (widths[k] == 0)
            continue;
        const bool to_the_right = k == INDEX || k == PRODUCTS;
        struct piece piece = {"", cells[k], strlen(cells[k]), ""};
        if (!is_whole && k == NAME)
            cut_name(&piece, cells[OPERATOR], widths[k]);
        else if (!is_whole && k == BECOMES)
            cut_end(&piece, widths[k]);
        else if (!is_whole)
            cut_begin(&piece, widths[k]);
        fputs(k == 0 ? "" : BETWEEN, out);
        print_piece(out, &piece, k < last || to_the_right ? widths[k] : 0, to_the_right);
    }
    fputc('\n', out);
}

static void print_nodes(FILE *out, const struct qd_explanation *explanation, size_t columns)
{
    size_t widths[COLUMN_COUNT];
    if (explanation->list->count == 0)
        return;
    measure(explanation, columns, widths);
    fputc('\n', out);
    print_row(out, titles, widths, columns == 0);
    for (size_t i = 0; i < explanation->list->count; i++) {
        struct row row;
        make_row(explanation, i, columns == 0, &row);
        print_row(out, row.cells, widths, columns == 0);
    }
    if (explanation->list->unlisted > 0)
        fprintf(out, "and %zu more\n", explanation->list->unlisted);
    fputc('\n', out);
    if (widths[BECOMES] > 0 && explanation->signature != NULL)
        fprintf(out, "%-*sa node with nothing there runs as it is\n", LABEL_COLUMNS, "becomes");
}

/* ---- What the model takes ------------------------------------------------------------------ */

static void print_ports(FILE *out, size_t columns, const char *label, const struct qd_port *ports,
                        size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char shape[256] = "any shape";
        if (ports[i].shaped)
            qd_print_integers(ports[i].dims, ports[i].rank, shape, sizeof(shape));
        print_format(out, columns, i == 0 ? label : "", "%.400s %s %s", ports[i].name,
                     ports[i].types == 0
                         ? ""
                         : qk_type_info((enum qk_type)__builtin_ctz(ports[i].types))->name,
                     shape);
    }
}

/* Prints which sizes were chosen. */
static void print_sizes(FILE *out, size_t columns, const struct qd_explanation *explanation)
{
    const struct qd_signature *signature = explanation->signature;
    if (!explanation->has_free_sizes)
        return;
    char others[64] = "";
    if (explanation->free_size > 0)
        snprintf(others, sizeof(others), ", and each other free dimension as %zu",
                 explanation->free_size);
    print_format(out, columns, "sizes",
                 "A free first dimension (the batch) counts as 1 here%s:", others);
    for (size_t i = 0; i < signature->input_count; i++) {
        struct qd_port port = signature->inputs[i];
        char shape[256];
        for (uint32_t k = 0; k < port.rank; k++)
            port.dims[k] = (int64_t)explanation->inputs[i].dims[k];
        qd_print_integers(port.dims, port.rank, shape, sizeof(shape));
        print_format(out, columns, "", "%.400s %s", port.name, shape);
    }
}

static void print_costs(FILE *out, size_t columns, const struct qd_explanation *explanation)
{
    char text[NUMBER_BYTES];
    char more[NUMBER_BYTES];
    print_format(out, columns, "memory", "%s bytes for the model",
                 print_number(explanation->resident_bytes, text));
    if (explanation->is_planned) {
        print_format(out, columns, "",
                     "%s bytes between nodes for each request, beside its inputs and outputs, and "
                     "%s bytes for each of its threads",
                     print_number(explanation->scratch_bytes, text),
                     print_number(explanation->workspace_bytes, more));
        print_format(out, columns, "products", "%s for each request",
                     print_number(explanation->multiplications, text));
        print_sizes(out, columns, explanation);
    } else if (explanation->brings_constants) {
        print_words(out, "", "Each request brings constants, and takes memory for them.", columns);
    } else {
        print_format(out, columns, "", "What a request takes is not known: %s",
                     explanation->why_unplanned);
    }
}

/* ---- A refusal ----------------------------------------------------------------------------- */

/* Prints why nodes are refused. A reason that several nodes have is printed once. Also prints the
 * error of the load, unless it has one of these reasons. */
static void print_refusals(FILE *out, size_t columns, const struct qd_explanation *explanation)
{
    const struct qd_onnx_listed *nodes = explanation->list->nodes;
    size_t count = 0;
    size_t before = 0;      /* the node whose reason was printed last */
    bool has_error = false; /* whether a reason that is printed is the error's */
    for (size_t i = 0; i < explanation->list->count; i++) {
        const char *refusal = nodes[i].refusal;
        if (nodes[i].fate != QD_FATE_REFUSED || refusal == NULL || count++ >= REFUSALS_MAX)
            continue;
        char label[32];
        snprintf(label, sizeof(label), "node %zu", i);
        if (count > 1 && strcmp(refusal, nodes[before].refusal) == 0) {
            print_format(out, columns, label, "as node %zu", before);
            continue;
        }
        print_words(out, label, refusal, columns);
        has_error |= strstr(explanation->error.text, refusal) != NULL;
        before = i;
    }
    if (count > REFUSALS_MAX)
        print_format(out, columns, "", "and %zu more nodes", count - REFUSALS_MAX);
    if (!has_error)
        print_words(out, "refused", explanation->error.text, columns);
}

/* Commands are not broken into lines, so that they can be copied. */
static void print_commands(FILE *out, const struct qd_explanation *explanation, size_t part,
                           struct qd_arena *arena)
{
    const char *commands[QD_EXPLAIN_COMMAND_COUNT_MAX];
    const size_t count = qd_explanation_commands(explanation, part, arena, commands);
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "%-*s", LABEL_COLUMNS, explanation->signature != NULL ? "to serve it" : "");
        print_bytes(out, commands[i], strlen(commands[i]));
        fputc('\n', out);
    }
}

static void print_cuts(FILE *out, size_t columns, const struct qd_explanation *explanation,
                       struct qd_arena *arena)
{
    for (size_t i = 0; i < explanation->cuts.count; i++) {
        fputc('\n', out);
        print_format(out, columns, "a part",
                     "quantd can serve %zu of the %zu nodes that depend on "
                     "inputs:",
                     explanation->cuts.list[i].node_count, explanation->cuts.node_count);
        print_commands(out, explanation, i, arena);
    }
}

/* ---- All ----------------------------------------------------------------------------------- */

bool qd_explanation_print_text(const struct qd_explanation *explanation, size_t terminal_columns,
                               struct qd_arena *arena, FILE *out)
{
    const struct qd_signature *signature = explanation->signature;
    const size_t columns = terminal_columns == 0            ? COLUMNS_DEFAULT
                           : terminal_columns < COLUMNS_MIN ? COLUMNS_MIN
                                                            : terminal_columns;
    print_words(out, "file", explanation->file, columns);
    if (signature != NULL) {
        print_words(out, "model", explanation->about, columns);
        print_ports(out, columns, "inputs", signature->inputs, signature->input_count);
        print_ports(out, columns, "outputs", signature->outputs, signature->output_count);
    }
    print_nodes(out, explanation, terminal_columns == 0 ? 0 : columns);
    if (signature != NULL) {
        print_costs(out, columns, explanation);
        print_commands(out, explanation, 0, arena);
    } else {
        print_refusals(out, columns, explanation);
        print_cuts(out, columns, explanation, arena);
    }
    return fflush(out) == 0 && !ferror(out);
}
