"""Writes include/ksim_swz.h: all multi-component swizzles of xyzw (and rgba) vectors."""
import itertools, pathlib, sys
out = []
for N in (2, 3, 4):
    out.append(f"#if KSIM_N == {N}")
    for names in ("xyzw", "rgba"):
        for L in (2, 3, 4):
            if names == "rgba" and L != N: continue
            for c in itertools.product(range(N), repeat=L):
                n = "".join(names[i] for i in c)
                out.append(f"KSIM_S{L}({n}, {', '.join(map(str, c))})")
    out.append("#endif")
pathlib.Path(sys.argv[1]).write_text("\n".join(out) + "\n")
