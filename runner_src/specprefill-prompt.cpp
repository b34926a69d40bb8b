#include "specprefill-prompt.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <string>

// Defined by a hook at the end of llama-batch.cpp; absent when that file was not rebuilt.
#if defined(__GNUC__)
extern "C" __attribute__((weak)) bool ospec_position_gaps;
#endif

namespace ospec {

namespace {

std::string piece_of(const llama_vocab * vocab, llama_token token) {
    char text[64];
    const int n = llama_token_to_piece(vocab, token, text, sizeof(text), 0, false);
    return n > 0 ? std::string(text, n) : "";
}

// The role a turn starts with: the first word of the few tokens after a control token.
bool begins_user_turn(const llama_vocab * vocab, const std::vector<llama_token> & tokens, size_t control) {
    std::string text;
    for (size_t i = control + 1; i < std::min(tokens.size(), control + 4); ++i) {
        if (llama_vocab_is_control(vocab, tokens[i])) {
            break;
        }
        text += piece_of(vocab, tokens[i]);
    }
    const size_t start = text.find_first_not_of(" \n");
    return start != std::string::npos && text.compare(start, 4, "user") == 0 &&
           (start + 4 == text.size() || !std::isalnum((unsigned char) text[start + 4]));
}

// Start of the last paragraph with some text in it, at most 96 tokens from the end.
int question_of(const llama_vocab * vocab, const std::vector<llama_token> & tokens) {
    int words = 0;
    const int n = (int) tokens.size();
    for (int i = n - 1; i >= std::max(0, n - 96); --i) {
        if (llama_vocab_is_control(vocab, tokens[i])) {
            continue;
        }
        if (words >= 8 && piece_of(vocab, tokens[i]).find('\n') != std::string::npos) {
            return i + 1;
        }
        words++;
    }
    return -1;
}

} // namespace

forced_spans forced_of(const llama_vocab * vocab, const std::vector<llama_token> & tokens) {
    forced_spans forced;
    forced.tokens.assign(tokens.size(), 0);
    forced.question = question_of(vocab, tokens);
    for (size_t i = 0; i < tokens.size(); ++i) {
        if (!llama_vocab_is_control(vocab, tokens[i])) {
            continue;
        }
        forced.tokens[i] = 1;
        if (begins_user_turn(vocab, tokens, i)) {
            if (forced.turn < 0) {
                forced.prefix = (int) i;
            }
            forced.turn = (int) i;
        }
    }
    return forced;
}

bool same_vocab(const llama_vocab * a, const llama_vocab * b) {
    if (a == b) {
        return true;
    }
    // Checkpoints of one family may pad the vocabulary differently.
    const int na = llama_vocab_n_tokens(a), nb = llama_vocab_n_tokens(b);
    if (llama_vocab_type(a) != llama_vocab_type(b) || std::abs(na - nb) > 128 ||
        llama_vocab_bos(a) != llama_vocab_bos(b) || llama_vocab_eos(a) != llama_vocab_eos(b)) {
        return false;
    }
    for (int i = 5; i < std::min(na, nb); ++i) { // the first ones are often renamed specials
        if (std::strcmp(llama_vocab_get_text(a, i), llama_vocab_get_text(b, i)) != 0) {
            return false;
        }
    }
    return true;
}

bool allow_position_gaps(bool allow) {
#if defined(__GNUC__)
    if (&ospec_position_gaps) {
        ospec_position_gaps = allow;
        return true;
    }
#endif
    (void) allow;
    return false;
}

bool context_takes_gaps(llama_context * ctx) {
    const llama_vocab * vocab = llama_model_get_vocab(llama_get_model(ctx));
    llama_memory_t memory = llama_get_memory(ctx);
    if (!memory) {
        return false;
    }
    llama_token token = llama_vocab_bos(vocab);
    token = token == LLAMA_TOKEN_NULL ? 0 : token;
    llama_batch batch = llama_batch_init(2, 0, 1);
    batch.n_tokens = 2;
    for (int i = 0; i < 2; ++i) {
        batch.token[i]     = token;
        batch.pos[i]       = 2 * i;
        batch.n_seq_id[i]  = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i]    = i == 1;
    }
    const bool first = llama_decode(ctx, batch) == 0;
    batch.n_tokens = 1;
    batch.pos[0] = 7; // and a gap to what the cache holds
    batch.logits[0] = 1;
    const bool second = first && llama_decode(ctx, batch) == 0;
    llama_batch_free(batch);
    llama_synchronize(ctx);
    llama_memory_clear(memory, true);
    return second;
}

} // namespace ospec
