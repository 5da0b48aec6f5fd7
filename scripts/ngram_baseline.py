#!/usr/bin/env python3
"""Computes the validation loss of a character n-gram model, a baseline for language models.

The model interpolates every order with the one below it, down to the uniform distribution p_0:

    p_n(c | h) = (count(h c) + k_n p_{n-1}(c | h')) / (count(h) + k_n)

where h is the last n-1 characters, h' is h without its first one, and k_n > 0 is the strength of the
smoothing (a Dirichlet prior; MacKay and Peto, "A Hierarchical Dirichlet Language Model", 1995).
Each order has its own k_1..k_n, chosen on the last tenth of the training characters. The reported model then
counts all training characters. The validation characters are used only for the loss.
"""

import argparse
from collections import Counter
from math import log
from pathlib import Path

DEFAULT_DATA = Path(__file__).resolve().parent.parent / "data" / "dummy.txt"
K_GRID = [2.0 ** i for i in range(-8, 13)]
K_START = 1.0


class NgramCounts:
    """Counts how often each string of up to `order` characters occurs in a text."""

    def __init__(self, text, order, vocabulary_size):
        self.uniform = 1 / vocabulary_size
        self.strings = Counter(text[i:i + n]
                               for n in range(1, order + 1) for i in range(len(text) - n + 1))
        self.contexts = Counter()
        for string, count in self.strings.items():
            self.contexts[string[:-1]] += count

    def events(self, before, text, order):
        """For each different string (h, c) of length `order` that ends in `text`, which follows `before`: its number of
        occurrences there, and the pairs (count(h c), count(h)) of its last 1, 2, .. characters in this model."""
        joined = before + text
        events = Counter(joined[i + 1 - order:i + 1] for i in range(len(before), len(joined)))
        return [(times, [self.pair(string[-n:]) for n in range(1, order + 1)])
                for string, times in events.items()]

    def pair(self, string):
        return self.strings[string], self.contexts[string[:-1]]


def mean_loss(events, ks, uniform):
    """Mean negative log-likelihood in nats per character."""
    total, characters = 0.0, 0
    for times, pairs in events:
        p = uniform
        for (count, context_count), k in zip(pairs, ks):
            p = (count + k * p) / (context_count + k)
        total -= times * log(p)
        characters += times
    return total / characters


def choose_ks(events, ks, uniform):
    """Coordinate descent over K_GRID, starting at `ks`, until no single k can be improved."""
    best = mean_loss(events, ks, uniform)
    improved = True
    while improved:
        improved = False
        for i in range(len(ks)):
            for k in K_GRID:
                candidate = ks[:i] + [k] + ks[i + 1:]
                loss = mean_loss(events, candidate, uniform)
                if loss < best:
                    best, ks, improved = loss, candidate, True
    return ks


def split(text, last_fraction):
    cut = len(text) - int(len(text) * last_fraction)
    return text[:cut], text[cut:]


def main():
    parser = argparse.ArgumentParser(description="Validation loss of a character n-gram model.")
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA,
                        help="text file (default: data/dummy.txt of this repository)")
    parser.add_argument("--order", type=int, default=3,
                        help="highest order; order n sees n-1 characters (default: %(default)s)")
    parser.add_argument("--val-fraction", type=float, default=0.1,
                        help="part of the text, at its end, to validate on (default: %(default)s)")
    args = parser.parse_args()
    if args.order < 1:
        parser.error("--order must be at least 1")
    if not 0 < args.val_fraction < 1:
        parser.error("--val-fraction must be between 0 and 1")

    text = args.data.read_bytes().decode("utf-8")
    vocabulary_size = len(set(text))
    train, val = split(text, args.val_fraction)
    tune_train, tune_val = split(train, 0.1)
    if not val or not tune_val or len(tune_train) < args.order:
        parser.error(f"{args.data} is too short to split")

    tune_counts = NgramCounts(tune_train, args.order, vocabulary_size)
    train_counts = NgramCounts(train, args.order, vocabulary_size)
    print(f"{args.data.name}: {len(train)} training and {len(val)} validation characters, "
          f"{vocabulary_size} distinct; loss in nats per character, interpolated Dirichlet smoothing")
    ks = []
    for order in range(1, args.order + 1):
        tune_events = tune_counts.events(tune_train, tune_val, order)
        ks = choose_ks(tune_events, ks + [K_START], tune_counts.uniform)
        loss = mean_loss(train_counts.events(train, val, order), ks, train_counts.uniform)
        print(f"order {order}: val loss {loss:.4f} (k = {', '.join(f'{k:.3g}' for k in ks)})")


if __name__ == "__main__":
    main()
