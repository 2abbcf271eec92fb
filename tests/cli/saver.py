"""Saves real checkpoints for the tests, through the library beside the command."""
import array
import ctypes
import os

FLOAT32, INT64 = 2, 10  # enum sidestep_dtype
ALIAS = 2  # enum sidestep_file_flag
FILES = [(b"trainer_state.json", b'{"step": 3}\n'), (b"tokenizer/vocab.txt", b"a b c"),
         (b"empty", b"")]


class Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int32), ("sys_errno", ctypes.c_int32), ("rank", ctypes.c_int32),
                ("reserved", ctypes.c_uint32 * 3), ("where", ctypes.c_char * 40),
                ("message", ctypes.c_char * 704)]


class Tensor(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("name", ctypes.c_char_p),
                ("dtype", ctypes.c_int), ("ndim", ctypes.c_uint32),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("offsets", ctypes.c_void_p),
                ("lengths", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("data", ctypes.c_void_p), ("flags", ctypes.c_uint32),
                ("path_length", ctypes.c_uint32), ("path", ctypes.c_void_p)]


class SaveOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("flags", ctypes.c_uint32),
                ("has_step", ctypes.c_uint32), ("step", ctypes.c_uint64),
                ("deadline_ms", ctypes.c_uint64)]


class Retention(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("flags", ctypes.c_uint32), ("keep_last", ctypes.c_uint32),
                ("keep_every", ctypes.c_uint64), ("keep_best", ctypes.c_uint32), ("reserved", ctypes.c_uint32),
                ("metric", ctypes.c_char_p)]


class SeriesOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("flags", ctypes.c_uint32), ("max_restarts", ctypes.c_uint32),
                ("prefix", ctypes.c_char_p), ("retention", ctypes.POINTER(Retention)),
                ("interval_steps", ctypes.c_uint64), ("interval_ms", ctypes.c_uint64), ("check_ms", ctypes.c_uint64),
                ("mtbf_ms", ctypes.c_uint64), ("max_lost", ctypes.c_double), ("name", ctypes.c_char_p),
                ("mirror", ctypes.c_char_p), ("mirror_options", ctypes.c_void_p)]


class Saver:
    """One engine. A tensor is (name, dtype, shape, array); an object is (name, int)."""

    def __init__(self, build):
        self.library = ctypes.CDLL(os.path.join(build, "libsidestep.so.0"))
        self.library.sidestep_value_int.restype = ctypes.c_void_p
        self.library.sidestep_value_int.argtypes = [ctypes.c_int64]
        self.engine = ctypes.c_void_p()
        self.call("sidestep_engine_open", ctypes.byref(self.engine), None)

    def call(self, function, *arguments):
        error = Error()
        if getattr(self.library, function)(*arguments, ctypes.byref(error)) != 0:
            raise OSError(error.message.decode("utf-8", "replace"))

    def save(self, path, step, tensors, objects, files=(), aliases=()):
        state = ctypes.c_void_p()
        self.call("sidestep_state_dict_new", ctypes.byref(state))
        for name, dtype, shape, data in tensors:
            tensor = Tensor(ctypes.sizeof(Tensor), name, dtype, len(shape),
                            (ctypes.c_int64 * len(shape))(*shape), data=data.buffer_info()[0])
            self.call("sidestep_state_dict_add_tensor", state, ctypes.byref(tensor))
        for name, number in objects:
            value = ctypes.c_void_p(self.library.sidestep_value_int(number))
            self.call("sidestep_state_dict_add_value", state, name, None, 0, value)
        for name, data in files:
            self.call("sidestep_state_dict_add_file", state, name, data, ctypes.c_size_t(len(data)), 0)
        for name in aliases:
            self.call("sidestep_state_dict_add_file", state, name, None, ctypes.c_size_t(0), ALIAS)
        options = SaveOptions(ctypes.sizeof(SaveOptions), 0, 1, step, 0)
        self.call("sidestep_save", self.engine, path.encode(), state, ctypes.byref(options), None)
        self.library.sidestep_state_dict_free(ctypes.byref(state))

    def small(self, path, step=100, **files):
        """Two tensors and an object."""
        self.save(path, step,
                  [(b"model.weight", FLOAT32, [2, 3], array.array("f", range(6))),
                   (b"count", INT64, [], array.array("q", [-7]))], [(b"epoch", 3)], **files)

    def with_files(self, path, step=100):
        """The same, with FILES and an alias."""
        self.small(path, step, files=FILES, aliases=[b"optimizer_0"])

    def close(self):
        self.call("sidestep_engine_close", ctypes.byref(self.engine))


class Run(Saver):
    """A series that is open at a root."""

    def __init__(self, build, root, mirror=None, keep_last=None):
        super().__init__(build)
        self.series = ctypes.c_void_p()
        options = SeriesOptions(ctypes.sizeof(SeriesOptions),
                                mirror=mirror.encode() if mirror is not None else None)
        if keep_last is not None:
            self.keep = Retention(ctypes.sizeof(Retention), 0, keep_last)
            options.retention = ctypes.pointer(self.keep)
        self.call("sidestep_series_open", self.engine, root.encode(), ctypes.byref(options),
                  ctypes.byref(self.series))

    def save(self, step):  # pylint: disable=arguments-differ
        state = ctypes.c_void_p()
        data = array.array("f", [step] * 1000)
        self.call("sidestep_state_dict_new", ctypes.byref(state))
        tensor = Tensor(ctypes.sizeof(Tensor), b"w", FLOAT32, 1, (ctypes.c_int64 * 1)(1000),
                        data=data.buffer_info()[0])
        self.call("sidestep_state_dict_add_tensor", state, ctypes.byref(tensor))
        self.call("sidestep_series_save", self.series, ctypes.c_uint64(step), state, None, None)
        self.library.sidestep_state_dict_free(ctypes.byref(state))

    def close(self):
        self.call("sidestep_series_close", ctypes.byref(self.series))
        super().close()
