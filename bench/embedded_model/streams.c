/* Hyper-connections, forward and backward, one pass over the streams each (spec: model §4.4).

   `before`: from streams [n][4][width] and raw mixes [n][24] to the input of half a layer, its post weights and
   combine matrices. `after`: the streams behind it. Sinkhorn works on LANES tokens at once, and its steps are
   computed again in the backward pass. Everything is float32; gradients of `scale` and `base` are added up in
   double. Called from streams.py. */

#include <math.h>
#include <string.h>

enum { STREAMS = 4, CELLS = 16, MIX = 24, LANES = 8, MOST_STEPS = 127 };

typedef float Lane[LANES];

static float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

/* One division of all cells by the sums of their columns (axis 0) or rows (axis 1), plus epsilon. */
static void divide(Lane *cell, Lane *sum, int axis, float epsilon)
{
    for (int k = 0; k < STREAMS; k++) {
        int first = axis ? k * STREAMS : k, stride = axis ? 1 : STREAMS;
        for (int l = 0; l < LANES; l++) {
            float total = epsilon;
            for (int i = 0; i < STREAMS; i++) total += cell[first + i * stride][l];
            sum[k][l] = total;
            float share = 1.0f / total;
            for (int i = 0; i < STREAMS; i++) cell[first + i * stride][l] *= share;
        }
    }
}

/* Softmax of every row of the raw combine matrices of one group of lanes, plus epsilon. */
static void soften(const Lane *raw, Lane *cell, float epsilon)
{
    for (int r = 0; r < STREAMS; r++)
        for (int l = 0; l < LANES; l++) {
            float largest = raw[r * STREAMS][l], total = 0.0f;
            for (int c = 1; c < STREAMS; c++) largest = fmaxf(largest, raw[r * STREAMS + c][l]);
            for (int c = 0; c < STREAMS; c++) {
                cell[r * STREAMS + c][l] = expf(raw[r * STREAMS + c][l] - largest);
                total += cell[r * STREAMS + c][l];
            }
            for (int c = 0; c < STREAMS; c++)
                cell[r * STREAMS + c][l] = cell[r * STREAMS + c][l] / total + epsilon;
        }
}

static void load_raw(Lane *raw, const float *mix, const float *scale, const float *base, const float *norm,
                     long first, long n)
{
    for (int l = 0; l < LANES; l++) {
        long t = first + l < n ? first + l : n - 1;
        for (int k = 0; k < CELLS; k++)
            raw[k][l] = mix[t * MIX + 2 * STREAMS + k] * norm[t] * scale[2] + base[2 * STREAMS + k];
    }
}

void streams_before(long n, int width, const float *streams, const float *mix, const float *scale,
                    const float *base, int rounds, float epsilon, float rms_epsilon, float *norm, float *input,
                    float *post, float *combine)
{
    Lane raw[CELLS], cell[CELLS], sum[STREAMS];
    for (long t = 0; t < n; t++) {
        const float *x = streams + t * STREAMS * width;
        float square = 0.0f, pre[STREAMS];
        for (int i = 0; i < STREAMS * width; i++) square += x[i] * x[i];
        norm[t] = 1.0f / sqrtf(square / (STREAMS * width) + rms_epsilon);
        for (int s = 0; s < STREAMS; s++) {
            pre[s] = sigmoid(mix[t * MIX + s] * norm[t] * scale[0] + base[s]) + epsilon;
            post[t * STREAMS + s] =
                2.0f * sigmoid(mix[t * MIX + STREAMS + s] * norm[t] * scale[1] + base[STREAMS + s]);
        }
        float *y = input + t * width;
        for (int i = 0; i < width; i++)
            y[i] = pre[0] * x[i] + pre[1] * x[width + i] + pre[2] * x[2 * width + i] + pre[3] * x[3 * width + i];
    }
    for (long t = 0; t < n; t += LANES) {
        load_raw(raw, mix, scale, base, norm, t, n);
        soften((const Lane *)raw, cell, epsilon);
        for (int step = 0; step < 2 * rounds - 1; step++) divide(cell, sum, step % 2, epsilon);
        for (int l = 0; l < LANES && t + l < n; l++)
            for (int k = 0; k < CELLS; k++) combine[(t + l) * CELLS + k] = cell[k][l];
    }
}

/* Back through all divisions and the softmax: gradients of the combine matrices become those of `raw`. */
static void sinkhorn_back(const Lane *raw, Lane *gradient, int rounds, float epsilon)
{
    static _Thread_local Lane kept[MOST_STEPS][CELLS], sums[MOST_STEPS][STREAMS];
    Lane cell[CELLS];
    int steps = 2 * rounds - 1;
    soften(raw, cell, epsilon);
    for (int step = 0; step < steps; step++) {
        divide(cell, sums[step], step % 2, epsilon);
        memcpy(kept[step], cell, sizeof cell);
    }
    for (int step = steps - 1; step >= 0; step--)
        for (int k = 0; k < STREAMS; k++) {
            int first = step % 2 ? k * STREAMS : k, stride = step % 2 ? 1 : STREAMS;
            for (int l = 0; l < LANES; l++) {
                float shared = 0.0f, share = 1.0f / sums[step][k][l];
                for (int i = 0; i < STREAMS; i++)
                    shared += gradient[first + i * stride][l] * kept[step][first + i * stride][l];
                for (int i = 0; i < STREAMS; i++)
                    gradient[first + i * stride][l] = (gradient[first + i * stride][l] - shared) * share;
            }
        }
    soften(raw, cell, 0.0f);
    for (int r = 0; r < STREAMS; r++)
        for (int l = 0; l < LANES; l++) {
            float shared = 0.0f;
            for (int c = 0; c < STREAMS; c++) shared += gradient[r * STREAMS + c][l] * cell[r * STREAMS + c][l];
            for (int c = 0; c < STREAMS; c++)
                gradient[r * STREAMS + c][l] = cell[r * STREAMS + c][l] * (gradient[r * STREAMS + c][l] - shared);
        }
}

void streams_before_back(long n, int width, const float *streams, const float *mix, const float *scale,
                         const float *base, int rounds, float epsilon, const float *norm,
                         const float *d_input, const float *d_post, const float *d_combine, float *d_streams,
                         float *d_mix, double *d_scale, double *d_base)
{
    Lane raw[CELLS], gradient[CELLS];
    for (long t = 0; t < n; t += LANES) {
        load_raw(raw, mix, scale, base, norm, t, n);
        for (int l = 0; l < LANES; l++)
            for (int k = 0; k < CELLS; k++) gradient[k][l] = t + l < n ? d_combine[(t + l) * CELLS + k] : 0.0f;
        sinkhorn_back((const Lane *)raw, gradient, rounds, epsilon);
        for (int l = 0; l < LANES && t + l < n; l++)
            for (int k = 0; k < CELLS; k++) d_mix[(t + l) * MIX + 2 * STREAMS + k] = gradient[k][l];
    }
    for (long t = 0; t < n; t++) {
        const float *x = streams + t * STREAMS * width, *dy = d_input + t * width, *m = mix + t * MIX;
        float *dx = d_streams + t * STREAMS * width, *dm = d_mix + t * MIX, pre[STREAMS], d_norm = 0.0f;
        for (int s = 0; s < STREAMS; s++) {
            float gate = sigmoid(m[s] * norm[t] * scale[0] + base[s]), dot = 0.0f;
            for (int i = 0; i < width; i++) dot += dy[i] * x[s * width + i];
            pre[s] = gate + epsilon;
            dm[s] = dot * gate * (1.0f - gate);
            gate = sigmoid(m[STREAMS + s] * norm[t] * scale[1] + base[STREAMS + s]);
            dm[STREAMS + s] = d_post[t * STREAMS + s] * 2.0f * gate * (1.0f - gate);
        }
        for (int k = 0; k < MIX; k++) {
            int part = k < STREAMS ? 0 : k < 2 * STREAMS ? 1 : 2;
            d_base[k] += dm[k];
            d_scale[part] += (double)dm[k] * m[k] * norm[t];
            d_norm += dm[k] * scale[part] * m[k];
            dm[k] *= scale[part] * norm[t];
        }
        float pull = -d_norm * norm[t] * norm[t] * norm[t] / (STREAMS * width);
        for (int s = 0; s < STREAMS; s++)
            for (int i = 0; i < width; i++) dx[s * width + i] = pre[s] * dy[i] + pull * x[s * width + i];
    }
}

void streams_after(long n, int width, const float *streams, const float *output, const float *post,
                   const float *combine, float *result)
{
    for (long t = 0; t < n; t++) {
        const float *x = streams + t * STREAMS * width, *y = output + t * width, *c = combine + t * CELLS;
        for (int j = 0; j < STREAMS; j++) {
            float *to = result + (t * STREAMS + j) * width, p = post[t * STREAMS + j];
            float c0 = c[j], c1 = c[STREAMS + j], c2 = c[2 * STREAMS + j], c3 = c[3 * STREAMS + j];
            for (int i = 0; i < width; i++)
                to[i] = p * y[i] + c0 * x[i] + c1 * x[width + i] + c2 * x[2 * width + i] + c3 * x[3 * width + i];
        }
    }
}

void streams_after_back(long n, int width, const float *streams, const float *output, const float *post,
                        const float *combine, const float *d_result, float *d_streams, float *d_output,
                        float *d_post, float *d_combine)
{
    for (long t = 0; t < n; t++) {
        const float *x = streams + t * STREAMS * width, *y = output + t * width, *c = combine + t * CELLS;
        const float *g = d_result + t * STREAMS * width, *p = post + t * STREAMS;
        float *dx = d_streams + t * STREAMS * width, *dy = d_output + t * width;
        for (int i = 0; i < width; i++)
            dy[i] = p[0] * g[i] + p[1] * g[width + i] + p[2] * g[2 * width + i] + p[3] * g[3 * width + i];
        for (int r = 0; r < STREAMS; r++) {
            const float *row = c + r * STREAMS;
            for (int i = 0; i < width; i++)
                dx[r * width + i] = row[0] * g[i] + row[1] * g[width + i] + row[2] * g[2 * width + i]
                                    + row[3] * g[3 * width + i];
        }
        for (int j = 0; j < STREAMS; j++) {
            const float *gj = g + j * width;
            float dot = 0.0f;
            for (int i = 0; i < width; i++) dot += gj[i] * y[i];
            d_post[t * STREAMS + j] = dot;
            for (int r = 0; r < STREAMS; r++) {
                const float *xr = x + r * width;
                dot = 0.0f;
                for (int i = 0; i < width; i++) dot += gj[i] * xr[i];
                d_combine[t * CELLS + r * STREAMS + j] = dot;
            }
        }
    }
}
