#include "score-read.h"

#include "ggml-alloc.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

namespace ospec {

namespace {

bool is_matrix(const ggml_tensor * t) {
    return std::strncmp(t->name, "kq_soft_max", 11) == 0 && t->name[11] != '_';
}

float op_float(const ggml_tensor * t, int index) {
    float value;
    std::memcpy(&value, (const char *) t->op_params + index * sizeof(float), sizeof(value));
    return value;
}

} // namespace

attention_reader::~attention_reader() {
    for (const auto & [dev, backend] : backends) {
        ggml_backend_free(backend);
    }
}

bool attention_reader::callback(ggml_tensor * t, bool ask, void * data) {
    auto & self = *(attention_reader *) data;
    const bool wanted = self.active && (self.opt.flash ? t->op == GGML_OP_FLASH_ATTN_EXT : is_matrix(t));
    if (ask || !wanted) {
        return ask ? wanted : true;
    }
    try {
        self.opt.flash ? self.take_flash(t) : self.take_matrix(t);
    } catch (const std::exception & e) {
        self.error = e.what();
    }
    return true;
}

void attention_reader::start(int n) {
    stop();
    n_prompt = n;
}

void attention_reader::stop() {
    active = false;
    n_query = n_seen = n_read = 0;
    error.clear();
    layers.clear();
    maxima.clear();
}

void attention_reader::begin_query() {
    active = true;
    n_seen = 0;
    maxima.emplace_back(n_prompt, 0.0f);
}

bool attention_reader::end_query() {
    active = false;
    n_query++;
    if (!error.empty()) {
        throw std::runtime_error(error);
    }
    return n_seen > 0;
}

// A windowed layer hides far tokens from the query, so it can say nothing about them.
bool attention_reader::sees_all(ggml_tensor * mask) const {
    if (!mask) {
        return true;
    }
    if (mask->ne[0] < n_prompt) {
        return false;
    }
    const bool half = mask->type == GGML_TYPE_F16;
    std::vector<uint8_t> row(n_prompt * (half ? sizeof(ggml_fp16_t) : sizeof(float)));
    ggml_backend_tensor_get(mask, row.data(), 0, row.size());
    for (int i = 0; i < n_prompt; ++i) {
        const float m = half ? ggml_fp16_to_fp32(((const ggml_fp16_t *) row.data())[i]) : ((const float *) row.data())[i];
        if (std::isinf(m)) {
            return false;
        }
    }
    return true;
}

void attention_reader::take_flash(ggml_tensor * t) {
    ggml_tensor * q = t->src[0], * k = t->src[1], * mask = t->src[3];
    n_seen++;
    const std::string name = k->view_src ? k->view_src->name : ""; // the cache tensor of this layer
    const auto known = layers.find(name);
    if (n_query > 0 && known == layers.end()) {
        return; // judged at the first query
    }
    if (n_query == 0) {
        if (!sees_all(mask)) {
            return;
        }
        if (op_float(t, 1) != 0) {
            throw std::runtime_error("the speculator uses ALiBi, which scoring does not know");
        }
        if (k->ne[1] < n_prompt || !k->view_src || !k->view_src->buffer || q->type != GGML_TYPE_F32) {
            throw std::runtime_error("the speculator's keys are not in a cache");
        }
    }
    layer & l = n_query == 0 ? layers[name] : known->second;
    if (n_query == 0) {
        l.keys    = *k;
        l.keys.buffer = k->view_src->buffer;
        l.scale   = op_float(t, 0);
        l.softcap = op_float(t, 2);
        l.n_head  = (int) q->ne[2];
    }
    const size_t d = q->ne[0], at = l.queries.size();
    l.queries.resize(at + l.n_head * d);
    for (int h = 0; h < l.n_head; ++h) { // the last token of the batch, which has only one
        ggml_backend_tensor_get(q, l.queries.data() + at + h * d, (q->ne[1] - 1) * q->nb[1] + h * q->nb[2], d * sizeof(float));
    }
}

void attention_reader::take_matrix(ggml_tensor * t) {
    n_seen++;
    if (!sees_all(t->src[1])) {
        return;
    }
    if (t->ne[0] < n_prompt) {
        throw std::runtime_error("the attention matrix is smaller than the prompt");
    }
    if (n_query == 0) {
        n_read++;
    }
    std::vector<float> row(n_prompt);
    for (int64_t h = 0; h < t->ne[2]; ++h) {
        ggml_backend_tensor_get(t, row.data(), (t->ne[1] - 1) * t->nb[1] + h * t->nb[2], n_prompt * sizeof(float));
        double sum = 0; // over prompt keys only, whatever else the softmax ran over
        for (const float p : row) {
            sum += p;
        }
        if (sum > 0) {
            for (float & p : row) {
                p = (float) (p / sum);
            }
            reduce(row.data(), n_query);
        }
    }
}

void attention_reader::reduce(float * row, int query) {
    std::fill(row, row + std::min(n_prompt, opt.n_sink), 0.0f);
    const int half = opt.pool / 2;
    std::vector<float> & best = maxima[query];
    double sum = 0; // running sum of the window; fewer neighbours at the ends, same divisor (as the paper)
    for (int i = 0; i < std::min(half, n_prompt); ++i) {
        sum += row[i];
    }
    for (int i = 0; i < n_prompt; ++i) {
        if (i + half < n_prompt) {
            sum += row[i + half];
        }
        if (i > half) {
            sum -= row[i - half - 1];
        }
        best[i] = std::max(best[i], (float) sum);
    }
}

ggml_backend_t attention_reader::backend_of(const ggml_tensor & keys) {
    // Host memory is for the CPU, whichever device owns it; everything else stays where it lies.
    ggml_backend_dev_t dev = nullptr;
    if (ggml_backend_buffer_is_host(keys.buffer)) {
        dev = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    } else {
        dev = ggml_backend_buft_get_device(ggml_backend_buffer_get_type(keys.buffer));
    }
    auto found = backends.find(dev);
    if (found != backends.end()) {
        return found->second;
    }
    ggml_backend_t backend = dev ? ggml_backend_dev_init(dev, nullptr) : nullptr;
    if (!backend) {
        throw std::runtime_error("no backend can read the speculator's keys");
    }
    const auto set_threads = (ggml_backend_set_n_threads_t) ggml_backend_reg_get_proc_address(
        ggml_backend_dev_backend_reg(dev), "ggml_backend_set_n_threads");
    if (set_threads) {
        set_threads(backend, opt.n_threads);
    }
    backends[dev] = backend;
    return backend;
}

// softmax(K q * scale) over the prompt, one KV head at a time with all its queries.
void attention_reader::read_layer(layer & l) {
    const int d = (int) l.keys.ne[0], n_head_kv = (int) l.keys.ne[2], group = l.n_head / n_head_kv;
    const int rows = group * n_query;
    ggml_backend_t backend = backend_of(l.keys);
    const ggml_init_params ip = { 16 * ggml_tensor_overhead() + ggml_graph_overhead(), nullptr, true };
    ggml_context * ctx = ggml_init(ip);
    ggml_tensor * k = ggml_new_tensor_2d(ctx, l.keys.type, d, n_prompt);
    ggml_tensor * q = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, d, rows);
    k->nb[1] = l.keys.nb[1];
    k->nb[2] = k->nb[3] = k->nb[1] * n_prompt;
    k->data   = l.keys.data; // lies in the cache: allocation below passes it by
    k->buffer = l.keys.buffer;
    ggml_tensor * kq = ggml_mul_mat(ctx, k, q);
    ggml_mul_mat_set_prec(kq, GGML_PREC_F32);
    float scale = l.scale;
    if (l.softcap != 0) { // the flash kernel's scale is already divided by the cap
        kq = ggml_scale(ctx, ggml_tanh(ctx, ggml_scale(ctx, kq, l.scale)), l.softcap);
        scale = 1;
    }
    ggml_tensor * p = ggml_soft_max_ext(ctx, kq, nullptr, scale, 0.0f);
    ggml_cgraph * graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, p);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(ctx, backend);
    std::string problem = buffer ? "" : "no memory to score a layer";
    std::vector<float> queries((size_t) rows * d), attention((size_t) rows * n_prompt);
    for (int j = 0; j < n_head_kv && problem.empty(); ++j) {
        k->data = (char *) l.keys.data + j * l.keys.nb[2];
        for (int step = 0; step < n_query; ++step) {
            std::copy_n(l.queries.data() + ((size_t) step * l.n_head + j * group) * d, (size_t) group * d,
                        queries.data() + (size_t) step * group * d);
        }
        ggml_backend_tensor_set(q, queries.data(), 0, ggml_nbytes(q));
        if (ggml_backend_graph_compute(backend, graph) != GGML_STATUS_SUCCESS) {
            problem = "scoring a layer failed";
            break;
        }
        ggml_backend_tensor_get(p, attention.data(), 0, ggml_nbytes(p));
        for (int r = 0; r < rows; ++r) {
            reduce(attention.data() + (size_t) r * n_prompt, r / group);
        }
    }
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
    if (!problem.empty()) {
        throw std::runtime_error(problem);
    }
}

std::vector<float> attention_reader::scores() {
    if (opt.flash) {
        n_read = (int) layers.size();
        for (auto & [name, l] : layers) {
            read_layer(l);
        }
    }
    if (n_read == 0) {
        throw std::runtime_error("no layer of the speculator attends to the whole prompt");
    }
    std::vector<float> mean(n_prompt, 0.0f);
    for (const std::vector<float> & step : maxima) {
        for (int i = 0; i < n_prompt; ++i) {
            mean[i] += step[i] / (float) (maxima.size() * opt.pool);
        }
    }
    return mean;
}

} // namespace ospec
