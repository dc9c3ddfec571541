"""Forty-four ordinary programs more than those of `benchmarks.held_out_programs`, with the same command line:

    python -m benchmarks.held_out_more --out real.json                                     # on a GPU
    python -m benchmarks.held_out_more --gpu h200 --against real.json                      # anywhere

They are as different as possible from each other: two derivatives, sparse and ragged tensors, linear algebra, Fourier
transforms, loops that read values, batches that grow, streams, graphs, searches. They use torch alone. None had a part
in the costs of the virtual GPU when they were first run: twenty-four of them on 2026-11-28 (`images`, `sequences` and
`arithmetic`), twenty on 2026-11-29 (`vision`, `inference`, `language` and `learning`). What an H200 took for the
twenty-four is benchmarks/results/held_out_more_h200.json; held_out_more_virtual.json is what was predicted.
"""
