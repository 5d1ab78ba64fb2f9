"""ksim: run Metal (mx.fast.metal_kernel) and CUDA (cupy.RawModule) kernels on the CPU.

Kernels are compiled as C++ with clang++ against metal_shim.h / cuda_shim.h and run by
libksim_rt.so, one fiber a GPU thread.  check="fast" (default) guards buffers with
unmapped pages; check="full" also finds data races and uninitialised shared memory.
"""
import ctypes, hashlib, os, re, shutil, subprocess, threading, time
from pathlib import Path
import numpy as np
import platformdirs
import platform, sys

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("KSIM_CACHE") or Path(platformdirs.user_cache_dir("ds4")) / "ksim")
WORKERS = int(os.environ.get("KSIM_WORKERS", os.cpu_count() or 1))
CHECK = os.environ.get("KSIM_CHECK", "fast")
SEED = int(os.environ.get("KSIM_SEED", "0"))
F_CUDA, F_STRICT, F_EXIT_OK, F_FULL = 1, 2, 4, 8
stats = {"compiles": 0, "compile_s": 0.0, "launches": 0, "launch_s": 0.0}
last = {}


class KernelError(RuntimeError):
    pass


def _clang():
    for c in (os.environ.get("KSIM_CXX"), "clang++-19", "clang++-18", "clang++-17", "clang++-16", "clang++"):
        if c and shutil.which(c):
            return c
    raise KernelError("ksim needs clang++ >= 16 (apt-get install clang-19)")


def clang_missing():
    """Why the simulator cannot run here, or None."""
    if os.environ.get("KSIM_FORCE") != "1" and (sys.platform, platform.machine()) != ("linux", "x86_64"):
        return "the kernel simulator runs on Linux x86-64 (KSIM_FORCE=1 tries elsewhere)"
    try:
        _clang()
    except KernelError as error:
        return str(error)
    return None


_CXX = None
_lock = threading.Lock()


def cxx():
    global _CXX
    if _CXX is None:
        _CXX = _clang()
    return _CXX


def _arch():
    import platform
    return ["-mavx2", "-mfma", "-mf16c"] if platform.machine() == "x86_64" else []


def flags(lang, check):
    f = ["-std=c++20", "-O1", "-g1", "-fPIC", "-fdeclspec", "-fno-exceptions", "-fno-rtti", "-ffp-contract=on", "-fno-strict-aliasing",
         "-Xclang", "-ffloat16-excess-precision=none", "-Xclang", "-fbfloat16-excess-precision=none",
         "-fsanitize=bounds", "-fsanitize-trap=bounds", "-mllvm", "-ubsan-unique-traps", "-fno-omit-frame-pointer",
         "-Wno-everything", "-Werror=return-type", f"-I{HERE/'include'}", f"-I{CACHE/'include'}"] + _arch()
    if lang == "metal":
        f += ["-Xclang", "-cl-single-precision-constant"]
    if check == "full":
        f += ["-fsanitize=thread", "-mllvm", "-tsan-instrument-func-entry-exit=false", "-mllvm", "-tsan-instrument-atomics=false"]
    return f


def _digest(*parts):
    h = hashlib.sha256()
    for p in parts:
        h.update(p if isinstance(p, bytes) else str(p).encode())
        h.update(b"\0")
    return h.hexdigest()[:24]


_shim_digest = None


def _shims():
    global _shim_digest
    if _shim_digest is None:
        if not (CACHE / "include/ksim_swz.h").exists():
            _atomic_build(CACHE / "include/ksim_swz.h", lambda t: subprocess.check_call([sys.executable, str(HERE / "gen_swz.py"), str(t)]))
        v = subprocess.run([cxx(), "--version"], capture_output=True, text=True).stdout
        _shim_digest = _digest(v, *(p.read_bytes() for p in sorted((HERE / "include").glob("*.h"))))
    return _shim_digest


def _atomic_build(dst, build):
    """build(tmp_path) then rename: safe with pytest-xdist."""
    if not dst.exists():
        dst.parent.mkdir(parents=True, exist_ok=True)
        tmp = dst.with_name(f".{dst.name}.{os.getpid()}.{threading.get_ident()}")
        build(tmp)
        os.replace(tmp, dst)
    return dst


def _run(cmd, what):
    p = subprocess.run(cmd, capture_output=True, text=True)
    if p.returncode:
        raise KernelError(f"{what}:\n{p.stderr[:6000]}")


_rt = None


class Launch(ctypes.Structure):
    _fields_ = [("entry", ctypes.c_void_p), ("args", ctypes.c_void_p), ("grid", ctypes.c_uint32 * 3), ("tg", ctypes.c_uint32 * 3),
                ("flags", ctypes.c_uint32), ("dynshared", ctypes.c_uint32), ("sharedlimit", ctypes.c_uint32), ("nworkers", ctypes.c_uint32),
                ("seed", ctypes.c_uint64), ("warpsize", ctypes.c_uint32), ("pad", ctypes.c_uint32)] + \
               [(n, ctypes.c_uint64) for n in ("switches", "barriers", "warpops", "divergent", "threads", "shared", "fail_pc")] + \
               [("err", ctypes.c_char * 768), ("note", ctypes.c_char * 512)]


def rt():
    global _rt
    with _lock:
        if _rt is None:
            src = HERE / "ksim_rt.cpp"
            so = CACHE / f"libksim_rt-{_digest(src.read_bytes(), (HERE/'include/ksim.h').read_bytes(), cxx())}.so"
            _atomic_build(so, lambda t: _run([cxx(), "-std=c++17", "-O2", "-g1", "-fPIC", "-shared", "-o", str(t), str(src), "-lpthread"], "runtime"))
            _rt = ctypes.CDLL(str(so), mode=ctypes.RTLD_GLOBAL)
            _rt.ksim_alloc.restype = ctypes.c_void_p
            _rt.ksim_alloc.argtypes = [ctypes.c_size_t, ctypes.c_char_p]
            _rt.ksim_free.argtypes = _rt.ksim_readonly.argtypes = [ctypes.c_void_p]
            _rt.ksim_launch.argtypes = [ctypes.POINTER(Launch)]
    return _rt


def _pch(lang, check):
    hdr = HERE / "include" / f"{lang}_shim.h"
    fl = flags(lang, check)
    dst = CACHE / f"{lang}-{_digest(_shims(), fl)}.pch"
    return _atomic_build(dst, lambda t: _run([cxx(), *fl, "-x", "c++-header", "-o", str(t), str(hdr)], "shim pch"))


def build(src, lang, check):
    """C++ source (after the shim include) -> loaded CDLL."""
    fl = flags(lang, check)
    rt()
    key = _digest(_shims(), fl, src)
    so = CACHE / "k" / f"{key}.so"

    def go(tmp):
        t0 = time.perf_counter()
        cpp = CACHE / "k" / f"{key}.cpp"
        cpp.write_text(src)
        _run([cxx(), *[x for x in fl], "-include-pch", str(_pch(lang, check)), "-shared", "-nostartfiles", "-o", str(tmp), str(cpp)]
             + (["-fno-sanitize-link-runtime"] if check == "full" else []), "kernel does not compile")
        stats["compiles"] += 1
        stats["compile_s"] += time.perf_counter() - t0
    return ctypes.CDLL(str(_atomic_build(so, go))), so


# ---- source rewriting -------------------------------------------------------
def strip_comments(s):
    def keep(m):
        t = m.group(0)
        return t if t[0] in "\"'" else re.sub(r"[^\n]", " ", t) or " "
    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'', keep, s, flags=re.S)


def float_literals(s):
    """MSL has no double: an unsuffixed 0.5 is a float.  clang's -cl-single-precision-constant
    is lost when a template is instantiated, so the suffix is added to the text."""
    return re.sub(r"(?<![\w.])((?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)(?![\w.])", r"\1f", s)


_counter = [0]


def rewrite_shared(s, word):
    """`threadgroup T a[N], b;` / `__shared__ T a[N];` -> KSIM_SHARED(...), pointers left alone."""
    out, i = [], 0
    for m in re.finditer(rf"(?:(?<=[;{{}}])|(?<=\n)|^)(\s*)((?:extern\s+|static\s+)?)\b{word}\b([^;(){{}}]*(?:\((?:[^()]*)\)[^;(){{}}]*)*);", s):
        ext, decl = m.group(2), m.group(3)
        al = 0
        a = re.search(r"(?:__align__|alignas)\s*\(([^)]*)\)", decl)
        if a:
            al, decl = a.group(1), decl.replace(a.group(0), " ")
        head = re.split(r"[\[=]", decl, 1)[0]
        if "*" in head or "&" in head or (word == "threadgroup" and "=" in decl):
            continue
        mm = re.match(r"\s*(?P<t>(?:const\s+|volatile\s+|unsigned\s+|signed\s+)*[\w:]+(?:\s*<[^;]*?>)?(?:::\w+)?)\s+(?P<rest>\w.*)$", decl, re.S)
        if not mm:
            continue
        parts, depth, cur = [], 0, ""
        for ch in mm.group("rest"):
            depth += ch in "[(<"
            depth -= ch in "])>"
            if ch == "," and depth == 0:
                parts.append(cur)
                cur = ""
            else:
                cur += ch
        parts.append(cur)
        code = ""
        for p in parts:
            n = re.match(r"\s*(\w+)\s*(.*)$", p, re.S)
            if "extern" in ext:
                code += f" KSIM_DYN({mm.group('t')}, {n.group(1)});"
            else:
                _counter[0] += 1
                t = mm.group("t")
                if "," in t:
                    code += f" using ksim_ty_{_counter[0]} = {t};"
                    t = f"ksim_ty_{_counter[0]}"
                code += f" KSIM_SHARED({_counter[0]}, {t}, {n.group(1)}, {' '.join(n.group(2).split())}, {al});"
        out.append(s[i:m.start()] + m.group(1) + code.strip() + "\n" * m.group(0)[len(m.group(1)):].count("\n"))
        i = m.end()
    return "".join(out) + s[i:]


def rewrite_asm(s):
    """Inline PTX -> calls of ksim_ptx functions (a small, explicit list)."""
    out, i = [], 0
    for m in re.finditer(r"\basm\b\s*(?:volatile|__volatile__)?\s*\(", s):
        if m.start() < i:
            continue
        d, j, q = 1, m.end(), False
        while d:
            c = s[j]
            if c == '"' and s[j - 1] != "\\":
                q = not q
            if not q:
                d += c == "("
                d -= c == ")"
            j += 1
        body = s[m.end():j - 1]
        secs, cur, d, q = [], "", 0, False
        for k, c in enumerate(body):
            if c == '"' and body[k - 1] != "\\":
                q = not q
            if not q:
                d += c in "(["
                d -= c in ")]"
                if c == ":" and d == 0 and body[k - 1:k + 1] != "::" and body[k:k + 2] != "::":
                    secs.append(cur)
                    cur = ""
                    continue
                if body[k:k + 2] == "::" and d == 0:
                    secs.append(cur)
                    cur = ""
                    continue
                if c == ":" and d == 0 and body[k - 1:k + 1] == "::":
                    secs.append(cur)
                    cur = ""
                    continue
            cur += c
        secs.append(cur)
        text = "".join(re.findall(r'"((?:\\.|[^"\\])*)"', secs[0])).replace("\\n", "\n").replace("\\t", " ")
        ops, checks = [], ""
        for sec in secs[1:3]:
            k = 0
            while True:
                mm = re.search(r'"[=+&]*(\w)"\s*\(', sec[k:])
                if not mm:
                    break
                a = k + mm.end()
                d, b = 1, a
                while d:
                    d += sec[b] == "("
                    d -= sec[b] == ")"
                    b += 1
                ops.append(sec[a:b - 1])
                size = {"r": 4, "f": 4, "l": 8, "d": 8, "h": 2}.get(mm.group(1))
                if size:
                    checks += f' static_assert(sizeof({sec[a:b - 1]}) == {size}, "asm operand size does not match its constraint");'
                k = b
        code = ""
        for ins in re.split(r"[;\n]", text):
            ins = ins.strip().strip("{}").strip() if not ins.strip().startswith("mma") else ins.strip()
            if not ins:
                continue
            code += " " + _ptx(ins, ops)
        out.append(s[i:m.start()] + "do {" + checks + code + " } while (0)" + "\n" * s[m.start():j].count("\n"))
        i = j
    return "".join(out) + s[i:]


def _ptx(ins, ops):
    op = ins.split(None, 1)[0]
    args = [ops[int(n)] if n else lit for n, lit in re.findall(r"%(\d+)|(?<![\w.%])(\d+)(?![\w.])", ins[len(op):])]
    a = ", ".join(args)
    m = re.match(r"mma\.sync\.aligned\.(m\d+n\d+k\d+)\.row\.col(?:\.satfinite)?\.(\w+)\.(\w+)\.(\w+)\.(\w+)$", op)
    if m:
        return f"ksim_ptx::mma_{'_'.join(m.groups())}({a});"
    m = re.match(r"ldmatrix\.sync\.aligned\.m8n8\.(x[124])(\.trans)?\.shared(?:::cta)?\.b16$", op)
    if m:
        args[-1] = f"ksim_ptx::sh({args[-1]})"
        return f"ksim_ptx::ldmatrix_{m.group(1)}{'_trans' if m.group(2) else ''}({', '.join(args)});"
    if op.startswith("cp.async.c") and "group" not in op or op.startswith("cp.async.ca"):
        return f"ksim_ptx::cp_async(ksim_ptx::sh({args[0]}), (const void*)({args[1]}), {args[2]});"
    if op.startswith("cp.async.commit_group") or op.startswith("cp.async.wait"):
        return "ksim_ptx::nop();"
    return f'ksim_fail("unsupported PTX: %s", "{op}");'


# ---- launching --------------------------------------------------------------
def _symbolize(so, base_pc, lib):
    if not base_pc:
        return ""
    try:
        maps = Path("/proc/self/maps").read_text().splitlines()
        for l in maps:
            if str(so) in l:
                lo = int(l.split("-")[0], 16)
                off = base_pc - lo
                r = subprocess.run(["addr2line", "-i", "-e", str(so), hex(off - 1)], capture_output=True, text=True).stdout.split()
                hits = [x for x in r if x.startswith("kernel:") or "kernel" in x.split(":")[0].rsplit("/", 1)[-1] or x.startswith("header")]
                return " at " + (hits[0].rsplit("/", 1)[-1] if hits else (r[0] if r else "?"))
    except Exception:
        pass
    return ""


def launch(entry, so, ptrs, grid, tg, fl, dyn=0, limit=0, lib=None, seed=None):
    L = Launch()
    arr = (ctypes.c_void_p * len(ptrs))(*ptrs)
    L.entry = ctypes.cast(entry, ctypes.c_void_p)
    L.args = ctypes.cast(arr, ctypes.c_void_p)
    L.grid[:] = [int(x) for x in grid]
    L.tg[:] = [int(x) for x in tg]
    L.flags, L.dynshared, L.sharedlimit, L.nworkers, L.seed = fl, dyn, limit, WORKERS, SEED if seed is None else seed
    t0 = time.perf_counter()
    rc = rt().ksim_launch(ctypes.byref(L))
    dt = time.perf_counter() - t0
    stats["launches"] += 1
    stats["launch_s"] += dt
    last.clear()
    last.update({n: getattr(L, n) for n in ("switches", "barriers", "warpops", "divergent", "threads", "shared")}, seconds=dt, note=L.note.decode())
    if rc:
        raise KernelError(L.err.decode(errors="replace") + _symbolize(so, L.fail_pc, lib))
    if L.note and os.environ.get("KSIM_STRICT"):
        raise KernelError(L.note.decode())


class _Buf:
    def __init__(self, nbytes, name):
        self.n, self.name = nbytes, name
        self.p = rt().ksim_alloc(nbytes, name.encode())

    def array(self, dtype, shape):
        n = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        b = (ctypes.c_char * n).from_address(self.p) if n else bytearray()
        return np.frombuffer(b, dtype=dtype).reshape(shape)

    def free(self):
        if rt().ksim_free(self.p) == 1:
            raise KernelError(f"write just outside buffer '{self.name}' (slack bytes changed)")


# ---- Metal ------------------------------------------------------------------
_TYPES = {"float32": "float", "float16": "float16_t", "bfloat16": "bfloat16_t", "int8": "int8_t", "uint8": "uint8_t", "int16": "int16_t",
          "uint16": "uint16_t", "int32": "int32_t", "uint32": "uint32_t", "int64": "int64_t", "uint64": "uint64_t", "bool": "bool_", "bool_": "bool"}
_ATTR = [("dispatch_quadgroups_per_threadgroup", "uint"), ("dispatch_simdgroups_per_threadgroup", "uint"), ("dispatch_threads_per_threadgroup", "uint3"),
         ("grid_origin", "uint3"), ("grid_size", "uint3"), ("quadgroup_index_in_threadgroup", "uint"), ("quadgroups_per_threadgroup", "uint"),
         ("simdgroup_index_in_threadgroup", "uint"), ("simdgroups_per_threadgroup", "uint"), ("thread_execution_width", "uint"),
         ("thread_index_in_quadgroup", "uint"), ("thread_index_in_simdgroup", "uint"), ("thread_index_in_threadgroup", "uint"),
         ("thread_position_in_grid", "uint3"), ("thread_position_in_threadgroup", "uint3"), ("threadgroup_position_in_grid", "uint3"),
         ("threadgroups_per_grid", "uint3"), ("threads_per_grid", "uint3"), ("threads_per_simdgroup", "uint"), ("threads_per_threadgroup", "uint3")]


def _dtname(dt):
    s = str(dt)
    return s.rsplit(".", 1)[-1] if "mlx" in s else ("bfloat16" if s == "bfloat16" else np.dtype(dt).name)


def _ctype(dt):
    n = _dtname(dt)
    return "bool" if n in ("bool", "bool_") else _TYPES[n]


def _is_mx(a):
    return type(a).__module__.startswith("mlx")


class _In:
    """An input as contiguous numpy bytes plus its logical dtype."""

    def __init__(self, a):
        if not hasattr(a, "dtype"):
            a = np.asarray(a, dtype=np.float32 if isinstance(a, float) else np.int32)
        self.dtype = _dtname(a.dtype)
        if _is_mx(a):
            import mlx.core as mx
            a = np.array(a.view(mx.uint16) if self.dtype == "bfloat16" and a.ndim else a.astype(mx.float32) if self.dtype == "bfloat16" else a)
        self.shape = tuple(a.shape)
        self.np = np.ascontiguousarray(a).reshape(self.shape)
        it = self.np.itemsize
        st, s = [], 1
        for d in reversed(self.shape):
            st.insert(0, s)
            s *= d
        self.strides = st


def metal_kernel(name, input_names, output_names, source, header="", ensure_row_contiguous=True, atomic_outputs=False, check=None, seed=None):
    """Same signature and semantics as mx.fast.metal_kernel, on the CPU."""
    body = float_literals(rewrite_shared(strip_comments(source), "threadgroup"))
    head = float_literals(rewrite_shared(strip_comments(header), "threadgroup"))
    built = {}

    def call(*, inputs, output_shapes, output_dtypes, grid, threadgroup, template=None, init_value=None, verbose=False, stream=None, **_):
        chk = check or CHECK
        if len(inputs) != len(input_names) or len(output_shapes) != len(output_names) or len(output_dtypes) != len(output_names):
            raise ValueError("[metal_kernel] number of inputs/outputs does not match the names")
        as_mx = any(_is_mx(a) for a in inputs) or any("mlx" in str(d) for d in output_dtypes)
        ins = [_In(a) for a in inputs]
        template = template or []
        sig, args = [], []
        for n, a in zip(input_names, ins):
            sp = "constant" if a.np.size < 8 else "device"
            ref = "&" if a.np.ndim == 0 else "*"
            sig.append(f"const {sp} {_ctype(a.dtype)}{ref} {n}")
            args.append(("in", n, a))
            if a.np.ndim:
                for suf, ty, val in (("_shape", "const constant int*", np.array(a.shape, np.int32)), ("_strides", "const constant int64_t*", np.array(a.strides, np.int64)),
                                     ("_ndim", "const constant int&", np.array(a.np.ndim, np.int32))):
                    if n + suf in source:
                        sig.append(f"{ty} {n}{suf}")
                        args.append(("aux", n + suf, val))
        for n, dt in zip(output_names, output_dtypes):
            t = _ctype(dt)
            sig.append(f"device {'atomic<' + t + '>' if atomic_outputs else t}* {n}")
        attrs = [(a, t) for a, t in _ATTR if a in source]
        tdef, tval = [], []
        for k, v in template:
            if isinstance(v, bool):
                tdef.append(f"bool {k}")
                tval.append("true" if v else "false")
            elif isinstance(v, int):
                tdef.append(f"int {k}")
                tval.append(str(v))
            else:
                tdef.append(f"typename {k}")
                tval.append(_ctype(v))
        key = (tuple(sig), tuple(tdef), tuple(tval), chk)
        if key not in built:
            fn = "custom_kernel_" + re.sub(r"\W", "_", name)
            params = sig + [f"{t} {a}" for a, t in attrs]
            nb = len(sig)
            src = "typedef half float16_t; typedef bfloat bfloat16_t;\n#line 1 \"header.metal\"\n" + head + "\n"
            if tdef:
                src += f"template <{', '.join(tdef)}>\n"
            src += f"static void {fn}(\n  " + ",\n  ".join(params) + ")\n{\n#line 1 \"kernel.metal\"\n" + body + "\n}\n"
            inst = fn + (f"<{', '.join(tval)}>" if tval else "")
            src += "#line 1 \"ksim-entry\"\ntemplate <class... P, int... I> static inline void ksim_call(void (*f)(P...), void** a, ksim::seq<I...>) {}\n"
            call_args = []
            for i, sg in enumerate(sig):
                ty = sg.rsplit(" ", 1)[0]
                call_args.append(f"*({ty.rstrip('&')}*)a[{i}]" if ty.endswith("&") else f"({ty})a[{i}]")
            call_args += [f"ksim_attr::{a}()" for a, _ in attrs]
            src += f"extern \"C\" __attribute__((visibility(\"default\"))) void ksim_entry(void** a) {{ {inst}({', '.join(call_args)}); }}\n"
            if verbose:
                print(src)
            lib, so = build(src, "metal", chk)
            built[key] = (lib, so, lib.ksim_entry)
        lib, so, entry = built[key]
        bufs, outs, ptrs = [], [], []
        try:
            for kind, n, v in args:
                a = v.np if kind == "in" else v
                b = _Buf(max(a.nbytes, 1), n)
                bufs.append(b)
                if a.nbytes:
                    ctypes.memmove(b.p, a.ctypes.data, a.nbytes)
                rt().ksim_readonly(b.p)
                ptrs.append(b.p)
            for n, sh, dt in zip(output_names, output_shapes, output_dtypes):
                dn = _dtname(dt)
                nd = np.dtype("uint16" if dn == "bfloat16" else "bool" if dn.startswith("bool") else dn)
                nb = int(np.prod(sh, dtype=np.int64)) * nd.itemsize
                b = _Buf(max(nb, 1), n)
                bufs.append(b)
                v = b.array(nd, tuple(sh))
                if init_value is None:
                    ctypes.memset(b.p, 0xFF, nb)      # poison: NaN / -1
                elif dn == "bfloat16":
                    v[...] = (np.array(init_value, np.float32).view(np.uint32) >> 16).astype(np.uint16)
                else:
                    v[...] = init_value
                outs.append((v, dn))
                ptrs.append(b.p)
            fl = (F_FULL if chk == "full" else 0) | (F_STRICT if os.environ.get("KSIM_STRICT", "1") != "0" else 0)
            launch(entry, so, ptrs, grid, threadgroup, fl, 0, 32768, lib, seed)
            res = []
            for v, dn in outs:
                v = v.copy()
                if as_mx:
                    import mlx.core as mx
                    v = mx.array(v).view(mx.bfloat16) if dn == "bfloat16" else mx.array(v)
                res.append(v)
            return res
        finally:
            for b in bufs:
                b.free()
    return call


# ---- CUDA -------------------------------------------------------------------
def _split_args(s):
    return s


class RawModule:
    """numpy stand-in for cupy.RawModule."""

    def __init__(self, *, code=None, path=None, options=(), backend="nvrtc", translate_cucomplex=False, enable_cooperative_groups=False, name_expressions=None, jitify=False, check=None):
        self.code = code if code is not None else Path(path).read_text()
        self.options = [o for o in options if o.startswith("-D")]
        self.names = list(name_expressions or [])
        self.check = check or CHECK
        self._lib = None

    def _build(self):
        if self._lib is None:
            src = strip_comments(self.code)
            src = re.sub(r'#\s*include\s*[<"](?:cuda_fp16|cuda_bf16|mma|cooperative_groups|cuda_runtime|math_constants|stdint|cstdint|cuda_pipeline)\w*(?:\.h)?[>"]', "", src)
            src = rewrite_asm(rewrite_shared(src, "__shared__"))
            found = [n for t, n in re.findall(r"(template\s*<[^;{}]*>\s*)?(?:extern\s+\"C\"\s+)?__global__\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(?:static\s+|inline\s+)?void\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\(", src) if not t]
            names = list(dict.fromkeys(found + self.names))
            self._ids = {n: i for i, n in enumerate(names)}
            defs = "".join(f"#define {o[2:].replace('=', ' ', 1)}\n" for o in self.options)
            full = defs + "#line 1 \"kernel.cu\"\n" + src + "\n#line 1 \"ksim-entry\"\n"
            for n, i in self._ids.items():
                full += f"extern \"C\" __attribute__((visibility(\"default\"))) void ksim_entry_{i}(void** a) {{ ksim::invoke(&{n}, a); }}\n"
                full += f"extern \"C\" __attribute__((visibility(\"default\"))) void ksim_meta_{i}(int* o) {{ ksim::meta(&{n}, o); }}\n"
            self._lib, self._so = build(full, "cuda", self.check)

    def compile(self, log_stream=None):
        self._build()

    def get_function(self, name):
        self._build()
        return RawKernel(None, name, _mod=self)


class RawKernel:
    def __init__(self, code, name, options=(), backend="nvrtc", _mod=None, **kw):
        self._mod = _mod or RawModule(code=code, options=options, **{k: v for k, v in kw.items() if k == "check"})
        self.name = name
        self.max_dynamic_shared_size_bytes = 49152
        self._meta = None

    def __call__(self, grid, block, args, *, shared_mem=0, stream=None):
        m = self._mod
        m._build()
        if self._meta is None:
            i = m._ids[self.name]
            buf = (ctypes.c_int * 256)()
            getattr(m._lib, f"ksim_meta_{i}")(buf)
            n = list(buf).index(-1)
            self._meta = [(v // 1000000, v // 100000 % 10, v % 100000) for v in buf[:n]]
            self._entry = getattr(m._lib, f"ksim_entry_{i}")
        if len(args) != len(self._meta):
            raise KernelError(f"{self.name} takes {len(self._meta)} arguments, {len(args)} given")
        if shared_mem > self.max_dynamic_shared_size_bytes:
            raise KernelError(f"shared_mem={shared_mem} needs max_dynamic_shared_size_bytes raised (now {self.max_dynamic_shared_size_bytes})")
        grid = tuple(grid) + (1,) * (3 - len(grid))
        block = tuple(block) + (1,) * (3 - len(block))
        bufs, ptrs, keep, back = [], [], [], []
        try:
            for k, (a, (kind, isf, size)) in enumerate(zip(args, self._meta)):
                if isinstance(a, np.ndarray) and a.ndim >= 0 and not isinstance(a, np.generic):
                    if not kind:
                        raise KernelError(f"{self.name} argument {k} is a value, an array was passed")
                    if not a.flags.c_contiguous:
                        raise KernelError(f"{self.name} argument {k}: array is not C-contiguous (cupy would pass its base pointer as is)")
                    if size > 1 and a.itemsize != size and size in (1, 2, 4, 8) and a.dtype != np.uint8 and a.dtype != np.int8:
                        last["note"] = f"argument {k}: {a.dtype} array for a pointer to {size}-byte elements"
                    b = _Buf(max(a.nbytes, 1), f"arg{k}")
                    bufs.append(b)
                    if a.nbytes:
                        ctypes.memmove(b.p, a.ctypes.data, a.nbytes)
                    if kind == 1:
                        rt().ksim_readonly(b.p)
                    else:
                        back.append((a, b))
                    ptrs.append(b.p)
                elif a is None:
                    ptrs.append(None)
                else:
                    v = a if isinstance(a, np.generic) else np.int64(a) if isinstance(a, int) and not isinstance(a, bool) else np.bool_(a) if isinstance(a, bool) else np.float64(a)
                    if kind or v.itemsize != size or (v.dtype.kind == "f") != bool(isf) and size >= 4:
                        raise KernelError(f"{self.name} argument {k}: {v.dtype} passed for a {size}-byte {'float' if isf else 'pointer' if kind else 'integer/struct'} parameter")
                    s = ctypes.create_string_buffer(v.tobytes())
                    keep.append(s)
                    ptrs.append(ctypes.addressof(s))
            fl = F_CUDA | F_EXIT_OK | F_STRICT | (F_FULL if m.check == "full" else 0)
            launch(self._entry, m._so, ptrs, grid, block, fl, shared_mem, 48 * 1024 + (shared_mem if shared_mem > 48 * 1024 else 0), m._lib)
            for a, b in back:
                if a.nbytes:
                    ctypes.memmove(a.ctypes.data, b.p, a.nbytes)
        finally:
            for b in bufs:
                b.free()
