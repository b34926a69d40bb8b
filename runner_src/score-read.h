// Reads attention out of a running graph: callback, cut and reduction. Used by score.cpp only.
#pragma once

#include "score.h"

#include "ggml.h"
#include "ggml-backend.h"

#include <map>

namespace ospec {

class attention_reader {
  public:
    explicit attention_reader(const score_options & options) : opt(options) {}
    ~attention_reader();
    attention_reader(const attention_reader &) = delete;
    attention_reader & operator=(const attention_reader &) = delete;

    static bool callback(ggml_tensor * t, bool ask, void * self);

    void start(int n_prompt);
    void stop();          // forgets all; the callback then asks for nothing
    void begin_query();
    bool end_query();     // whether any layer was seen
    // Mean over queries of the maximum over layers and heads of the pooled attention.
    std::vector<float> scores();
    int n_layers() const { return n_read; }

  private:
    struct layer {
        ggml_tensor keys;             // view into the cache at the first query: [d, n_kv, n_head_kv]
        float scale = 1, softcap = 0;
        int   n_head = 0;
        std::vector<float> queries;   // n_query * n_head * d
    };
    const score_options & opt;
    int  n_prompt = 0, n_query = 0, n_seen = 0, n_read = 0;
    bool active = false;
    std::string error;                // exceptions must not cross the C callback
    std::map<std::string, layer> layers;
    std::vector<std::vector<float>> maxima; // per query, per prompt token
    std::vector<float> pooled;
    std::map<ggml_backend_dev_t, ggml_backend_t> backends;

    void take_flash(ggml_tensor * t);
    void take_matrix(ggml_tensor * t);
    bool sees_all(ggml_tensor * mask) const;
    void reduce(float * row, int query);  // sinks, pool, maximum; changes `row`
    void read_layer(layer & l);
    ggml_backend_t backend_of(const ggml_tensor & keys);
};

} // namespace ospec
