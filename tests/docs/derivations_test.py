"""Checks the final formulas of docs/derivations.md numerically.

Gradients are compared with central differences in f64, AdamW with its definition as a sum over all gradients, the ring
with a simulation of its messages. Each boxed formula of the page stands beside the code that computes it, so that a
formula cannot be changed in one place only.
"""

import math
import random
import re
import sys
import unittest
from collections.abc import Callable
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs/derivations.md"
STEP, LIMIT = 1e-5, 1e-8  # of central differences; their relative error is about 1e-10

Row = list[float]
Matrix = list[Row]

FORMULAS = {
    "layernorm": r"\mathrm{d}x_i = r\Big(g_i - \frac1C\sum_j g_j - \hat x_i\,\frac1C\sum_j g_j\hat x_j\Big)",
    "cross-entropy": r"\mathrm{d}z_{nv} = \frac{\mathrm{d}L}{N}\,\big(p_{nv} - \delta_{v t_n}\big), "
    r"\qquad p_{nv} = e^{z_{nv}-\mathrm{lse}_n}",
    "attention": r"\mathrm{d}s_{tu} = p_{tu}\,\big(f_{tu}\,\mathrm{d}o_t\cdot v_u - \mathrm{d}o_t\cdot o_t\big), \quad "
    r"\mathrm{d}q_t = \alpha\sum_{u\le t}\mathrm{d}s_{tu}\,k_u, \quad "
    r"\mathrm{d}k_u = \alpha\sum_{t\ge u}\mathrm{d}s_{tu}\,q_t, \quad "
    r"\mathrm{d}v_u = \sum_{t\ge u} f_{tu}\,p_{tu}\,\mathrm{d}o_t",
    "adamw": r"w_t = w_{t-1} - \eta\Big(\frac{\hat m_t}{\sqrt{\hat v_t}+\epsilon} + \lambda\,w_{t-1}\Big) = "
    r"(1-\eta\lambda)\,w_{t-1} - \frac{\eta}{1-\beta_1^{\,t}}\cdot"
    r"\frac{m_t}{\sqrt{v_t}\big/\sqrt{1-\beta_2^{\,t}} + \epsilon}",
    "bytes": r"\text{bytes sent by each rank} = 2\,\frac{N-1}{N}\,S",
    "seconds": r"t_{\text{ring}} = 2(N-1)\Big(\alpha + \frac{S}{N}\beta\Big) = 2(N-1)\,\alpha + 2\,\frac{N-1}{N}\,S\beta",
}


def numbers(rng: random.Random, rows: int, columns: int) -> Matrix:
    return [[rng.gauss(0, 1) for _ in range(columns)] for _ in range(rows)]


def dot(a: Row, b: Row) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def weighted(outputs: Matrix, gradients: Matrix) -> float:
    """A loss whose gradient with respect to the outputs is `gradients`."""
    return sum(dot(out, gradient) for out, gradient in zip(outputs, gradients, strict=True))


def differences(loss: Callable[[], float], x: Matrix) -> Matrix:
    """The gradient of the loss, which reads x, by central differences."""
    gradient = [[0.0] * len(row) for row in x]
    for i, row in enumerate(x):
        for j, value in enumerate(row):
            row[j] = value + STEP
            right = loss()
            row[j] = value - STEP
            gradient[i][j] = (right - loss()) / (2 * STEP)
            row[j] = value
    return gradient


class DerivationTest(unittest.TestCase):
    def setUp(self) -> None:
        self.rng = random.Random(5)

    def expect_equal(self, got: Matrix, expected: Matrix) -> None:
        error = math.sqrt(sum((a - b) ** 2 for g, e in zip(got, expected, strict=True) for a, b in zip(g, e, strict=True)))
        norm = math.sqrt(sum(b * b for row in expected for b in row))
        self.assertLess(error, LIMIT * norm)


class Page(unittest.TestCase):
    def test_has_the_formulas_that_are_checked_here(self) -> None:
        boxes = re.findall(r"\\boxed\{\\;(.*?)\\;\}", PAGE.read_text(encoding="utf-8"), re.DOTALL)
        self.assertEqual([" ".join(box.split()) for box in boxes], list(FORMULAS.values()))


class Layernorm(DerivationTest):
    N, C, EPS = 3, 7, 0.1

    def statistics(self, row: Row) -> tuple[float, float]:
        mean = sum(row) / self.C
        return mean, 1 / math.sqrt(sum((value - mean) ** 2 for value in row) / self.C + self.EPS)

    def normalised(self, row: Row) -> Row:
        mean, r = self.statistics(row)
        return [(value - mean) * r for value in row]

    def forward(self, x: Matrix, w: Matrix, b: Matrix) -> Matrix:
        return [[w[0][c] * value + b[0][c] for c, value in enumerate(self.normalised(row))] for row in x]

    def dx(self, row: Row, dy: Row, w: Row) -> Row:
        xhat, r = self.normalised(row), self.statistics(row)[1]
        g = [d * weight for d, weight in zip(dy, w, strict=True)]
        mean_g, mean_gx = sum(g) / self.C, dot(g, xhat) / self.C
        return [r * (g[i] - mean_g - xhat[i] * mean_gx) for i in range(self.C)]

    def test_gradients(self) -> None:
        x, dy = numbers(self.rng, self.N, self.C), numbers(self.rng, self.N, self.C)
        w, b = numbers(self.rng, 1, self.C), numbers(self.rng, 1, self.C)

        def loss() -> float:
            return weighted(self.forward(x, w, b), dy)

        dx = [self.dx(row, d, w[0]) for row, d in zip(x, dy, strict=True)]
        self.expect_equal(dx, differences(loss, x))
        xhat = [self.normalised(row) for row in x]
        self.expect_equal([[sum(dy[n][c] * xhat[n][c] for n in range(self.N)) for c in range(self.C)]], differences(loss, w))
        self.expect_equal([[sum(dy[n][c] for n in range(self.N)) for c in range(self.C)]], differences(loss, b))
        for row in dx:
            self.assertAlmostEqual(sum(row), 0, delta=1e-13)

    def test_ignores_a_factor_without_epsilon(self) -> None:
        self.EPS = 0
        x, dy, w = (numbers(self.rng, 1, self.C)[0] for _ in range(3))
        self.assertAlmostEqual(dot(x, self.dx(x, dy, w)), 0, delta=1e-13)


class CrossEntropy(DerivationTest):
    N, V = 4, 6

    def lse(self, row: Row) -> float:
        m = max(row)
        return m + math.log(sum(math.exp(value - m) for value in row))

    def test_gradient(self) -> None:
        z, targets, dL = numbers(self.rng, self.N, self.V), [5, 0, 3, 3], 0.7

        def loss() -> float:  # by the definition, without lse
            return -dL / self.N * sum(
                math.log(math.exp(row[t]) / sum(map(math.exp, row))) for row, t in zip(z, targets, strict=True))

        dz = [[dL / self.N * (math.exp(row[v] - self.lse(row)) - (v == t)) for v in range(self.V)]
              for row, t in zip(z, targets, strict=True)]
        self.expect_equal(dz, differences(loss, z))
        for row in dz:
            self.assertAlmostEqual(sum(row), 0, delta=1e-15)

    def test_lse_of_large_numbers_is_finite(self) -> None:
        self.assertEqual(self.lse([1e4, 1e4]), 1e4 + math.log(2))
        self.assertEqual(self.lse([-1e4, -2e4]), -1e4)
        with self.assertRaises(OverflowError):
            math.exp(1e4)
        largest = (2 - 2**-23) * 2.0**127  # of f32
        self.assertAlmostEqual(math.log(largest), 88.73, delta=0.01)

    def test_gradient_of_softmax_alone(self) -> None:
        z, dp = numbers(self.rng, 1, self.V), numbers(self.rng, 1, self.V)

        def softmax() -> Row:
            return [math.exp(value - self.lse(z[0])) for value in z[0]]

        p = softmax()
        dz = [p[v] * (dp[0][v] - dot(p, dp[0])) for v in range(self.V)]
        self.expect_equal([dz], differences(lambda: dot(softmax(), dp[0]), z))


class Attention(DerivationTest):
    T, H, SCALE = 5, 3, 0.8

    def setUp(self) -> None:
        super().setUp()
        self.q, self.k, self.v = (numbers(self.rng, self.T, self.H) for _ in range(3))
        self.f = [[self.rng.choice([0, 1.25]) for _ in range(self.T)] for _ in range(self.T)]

    def forward(self) -> Matrix:
        out = []
        for t in range(self.T):
            e = [math.exp(self.SCALE * dot(self.q[t], self.k[u])) for u in range(t + 1)]
            p = [self.f[t][u] * value / sum(e) for u, value in enumerate(e)]
            out.append([sum(p[u] * self.v[u][i] for u in range(t + 1)) for i in range(self.H)])
        return out

    def backward(self, do: Matrix) -> tuple[Matrix, Matrix, Matrix, Matrix]:
        """ds, dq, dk, dv."""
        out = self.forward()
        ds = [[0.0] * self.T for _ in range(self.T)]
        dq, dk, dv = ([[0.0] * self.H for _ in range(self.T)] for _ in range(3))
        for t in range(self.T):
            s = [self.SCALE * dot(self.q[t], self.k[u]) for u in range(t + 1)]
            lse = math.log(sum(map(math.exp, s)))
            for u in range(t + 1):
                p = math.exp(s[u] - lse)
                ds[t][u] = p * (self.f[t][u] * dot(do[t], self.v[u]) - dot(do[t], out[t]))
                for i in range(self.H):
                    dq[t][i] += self.SCALE * ds[t][u] * self.k[u][i]
                    dk[u][i] += self.SCALE * ds[t][u] * self.q[t][i]
                    dv[u][i] += self.f[t][u] * p * do[t][i]
        return ds, dq, dk, dv

    def test_gradients(self) -> None:
        do = numbers(self.rng, self.T, self.H)
        ds, dq, dk, dv = self.backward(do)
        for got, x in ((dq, self.q), (dk, self.k), (dv, self.v)):
            self.expect_equal(got, differences(lambda: weighted(self.forward(), do), x))
        for row in ds:
            self.assertAlmostEqual(sum(row), 0, delta=1e-14)
        self.assertEqual(dq[0], [0, 0, 0])
        for i in range(self.H):
            self.assertAlmostEqual(sum(row[i] for row in dk), 0, delta=1e-14)


class AdamW(DerivationTest):
    BETA1, BETA2, ETA, DECAY, EPS = 0.9, 0.95, 0.02, 0.1, 1e-8

    def step(self, w: float, gradients: Row) -> float:
        """The definition: weighted means of all gradients so far."""
        t = len(gradients)

        def mean(beta: float, values: Row) -> float:
            weights = [beta ** (t - 1 - i) for i in range(t)]
            return dot(weights, values) / sum(weights)

        m, v = mean(self.BETA1, gradients), mean(self.BETA2, [g * g for g in gradients])
        return w - self.ETA * (m / (math.sqrt(v) + self.EPS) + self.DECAY * w)

    def trained(self, gradients: Row) -> Row:
        """The weights after each step, by the second form of the page, which is that of the code."""
        w, m, v, weights = 1.0, 0.0, 0.0, []
        for t, g in enumerate(gradients, 1):
            m = self.BETA1 * m + (1 - self.BETA1) * g
            v = self.BETA2 * v + (1 - self.BETA2) * g * g
            root = math.sqrt(v) / math.sqrt(1 - self.BETA2**t) + self.EPS
            w = (1 - self.ETA * self.DECAY) * w - self.ETA / (1 - self.BETA1**t) * m / root
            weights.append(w)
        return weights

    def test_steps(self) -> None:
        gradients, w = numbers(self.rng, 1, 30)[0], 1.0
        for t, got in enumerate(self.trained(gradients), 1):
            w = self.step(w, gradients[:t])
            self.assertAlmostEqual(got, w, delta=1e-13)

    def test_first_step_and_factors(self) -> None:
        self.DECAY = 0
        for g in (1e-3, -50.0):
            self.assertAlmostEqual(1 - self.trained([g])[0], math.copysign(self.ETA, g), delta=1e-6)
        gradients = numbers(self.rng, 1, 20)[0]
        self.EPS = 0
        self.expect_equal([self.trained([g / 4 for g in gradients])], [self.trained(gradients)])


class RingAllReduce(DerivationTest):
    """Ranks that hold slices, and messages between neighbours."""

    @staticmethod
    def run_ring(n: int, slices: list[list[set[int]]]) -> tuple[list[int], int]:
        """Each slice is the set of ranks whose contribution it has. Returns the slices sent by each rank, and the steps."""
        sent = [0] * n
        for step in range(2 * (n - 1)):
            adds, g = step < n - 1, step - (n - 1)
            which = [(r - 1 - step) % n if adds else (r - g) % n for r in range(n)]
            messages = [set(slices[r][which[r]]) for r in range(n)]
            for r in range(n):
                sent[r] += 1
                to, item = (r + 1) % n, which[r]
                if adds and slices[to][item] & messages[r]:
                    raise AssertionError("a contribution is added twice")
                slices[to][item] = slices[to][item] | messages[r] if adds else messages[r]
            if step == n - 2 and any(slices[r][r] != set(range(n)) for r in range(n)):
                raise AssertionError("slice r of rank r is not complete after the reduce-scatter")
        return sent, 2 * (n - 1)

    def test_sums_bytes_and_seconds(self) -> None:
        alpha, beta = 3e-6, 1e-9
        for n in range(1, 9):
            slices = [[{rank} for _ in range(n)] for rank in range(n)]
            sent, steps = self.run_ring(n, slices)
            self.assertTrue(all(held == set(range(n)) for rank in slices for held in rank), n)
            size = 840 * 4096  # divisible by 1 to 8
            for count in sent:
                self.assertEqual(count * size // n, 2 * (n - 1) * size // n)
            self.assertAlmostEqual(steps * (alpha + size / n * beta), 2 * (n - 1) * alpha + 2 * (n - 1) / n * size * beta,
                                   delta=1e-15)

    def test_claim_about_partial_sums(self) -> None:
        for n in range(2, 8):
            held = [[{rank} for _ in range(n)] for rank in range(n)]
            for s in range(n - 1):
                messages = [set(held[r][(r - 1 - s) % n]) for r in range(n)]
                for r in range(n):
                    held[(r + 1) % n][(r - 1 - s) % n] |= messages[r]
                for r in range(n):
                    self.assertEqual(held[r][(r - 2 - s) % n], {(r - i) % n for i in range(s + 2)})


class Overlap(DerivationTest):
    def test_bounds(self) -> None:
        """Buckets that become complete at a constant rate, on one connection."""
        for buckets in (1, 3, 13):
            for backward, communication in ((1.0, 0.4), (1.0, 1.0), (1.0, 2.5)):
                end = 0.0
                for b in range(1, buckets + 1):
                    end = max(end, backward * b / buckets) + communication / buckets
                self.assertGreaterEqual(end + 1e-12, max(backward, communication))
                self.assertLessEqual(end, max(backward, communication) + communication / buckets + 1e-12)


if __name__ == "__main__":
    sys.exit(0 if unittest.main(exit=False, verbosity=1).result.wasSuccessful() else 1)
