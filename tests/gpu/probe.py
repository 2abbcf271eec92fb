# SPDX-License-Identifier: BSD-3-Clause
"""probe.py -- asks a driver what docs/internals/CUDA.md says that its manual says, or does not say.

The calls are those of the library, by ctypes. Each answer is printed beside the manual's; "open":
the manual says nothing, and the answer is news.
"""

import argparse
import ctypes

import place
import torch

OK, INVALID_VALUE, INVALID_HANDLE = 0, 1, 400
REGISTERED, NOT_REGISTERED, IMPLICIT = 712, 713, 906
TYPE, MANAGED, ORDINAL, OLD_IPC, BEGIN, SIZE, MAPPED = 2, 8, 9, 10, 11, 12, 13
MIB = 1 << 20
# A kernel that fails: it costs this process its context, and nothing else.
TRAP = b".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry t() { trap; }\n"


def pointer(value=None):
    return ctypes.c_void_p(value)


class Real:
    """NVIDIA's driver, in a process with a primary context that is current."""

    def __init__(self):
        self.anchor = torch.zeros(1, device="cuda")
        self.calls = ctypes.CDLL("libcuda.so.1")
        self.own = torch.cuda.Stream().cuda_stream

    def call(self, name, *arguments):
        return getattr(self.calls, name)(*arguments)

    def must(self, name, *arguments):
        result = self.call(name, *arguments)
        if result != OK:
            raise OSError(f"{name}: error {result}")

    def device(self, size):
        found = ctypes.c_uint64()
        self.must("cuMemAlloc_v2", ctypes.byref(found), ctypes.c_size_t(size))
        return found.value

    def managed(self, size):
        found = ctypes.c_uint64()
        self.must("cuMemAllocManaged", ctypes.byref(found), ctypes.c_size_t(size), 1)
        return found.value

    def pool(self, size):
        found = ctypes.c_uint64()
        self.must("cuMemAllocAsync", ctypes.byref(found), ctypes.c_size_t(size), pointer(self.own))
        return found.value

    def reserved(self, size):
        """Addresses of ``size`` bytes, the first half of them with memory."""
        # CUmemAllocationProp: pinned memory of device 0
        wanted = (ctypes.c_int * 16)(1, 0, 1, 0)
        address, memory = ctypes.c_uint64(), ctypes.c_uint64()
        half = ctypes.c_size_t(size // 2)
        zero = ctypes.c_size_t(0)
        self.must(
            "cuMemAddressReserve",
            ctypes.byref(address),
            ctypes.c_size_t(size),
            zero,
            ctypes.c_uint64(0),
            ctypes.c_uint64(0),
        )
        self.must("cuMemCreate", ctypes.byref(memory), half, wanted, ctypes.c_uint64(0))
        self.must("cuMemMap", address, half, zero, memory, ctypes.c_uint64(0))
        access = (ctypes.c_int * 3)(1, 0, 3)
        self.must("cuMemSetAccess", address, half, access, ctypes.c_size_t(1))
        return address.value

    def blocking_stream(self):
        found = pointer()
        self.must("cuStreamCreate", ctypes.byref(found), 0)
        return found.value

    def green_stream(self):
        """Of a green context with all of the device's processors."""
        resource = ctypes.create_string_buffer(4096)
        description, context, stream = pointer(), pointer(), pointer()
        self.must("cuDeviceGetDevResource", 0, resource, 1)
        self.must("cuDevResourceGenerateDesc", ctypes.byref(description), resource, 1)
        self.must("cuGreenCtxCreate", ctypes.byref(context), description, 0, 1)
        self.must("cuGreenCtxStreamCreate", ctypes.byref(stream), context, 1, 0)
        return stream.value

    def capture(self, stream, on):
        """Whether the capture that ends was valid."""
        graph = pointer()
        if on:
            self.must("cuStreamBeginCapture_v2", pointer(stream), 0)
            return True
        return self.call("cuStreamEndCapture", pointer(stream), ctypes.byref(graph)) == OK

    def lose(self):
        module, kernel = pointer(), pointer()
        self.must("cuModuleLoadData", ctypes.byref(module), TRAP)
        self.must("cuModuleGetFunction", ctypes.byref(kernel), module, b"t")
        self.must(
            "cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, pointer(self.own), pointer(), pointer()
        )
        self.call("cuStreamSynchronize", pointer(self.own))


class StandIn(Real):
    """The one of tests/cuda."""

    def __init__(self):
        self.where = place.StandIn()
        self.driver = self.where.driver
        self.calls, self.own = self.driver.calls, self.where.streams[0]
        context = pointer()
        self.must("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.must("cuCtxPushCurrent_v2", context)
        self.driver.slow(0)

    def call(self, name, *arguments):
        result = super().call(name, *arguments)
        self.driver.forgive()  # of mistakes that the questions are about
        return result

    def device(self, size):
        return self.driver.allocate(0, size)

    def managed(self, size):
        return self.driver.allocate_managed(0, size)

    def pool(self, size):
        return self.driver.allocate_on(0, self.own, size)

    def reserved(self, size):
        return self.driver.reserve(0, size, size // 2)

    def blocking_stream(self):
        return self.driver.new_stream_of(0, 1)

    def green_stream(self):
        return self.driver.new_stream_of(0, 2)

    def capture(self, stream, on):
        self.driver.capture(0, stream, on)
        return not self.driver.capture_is_spoiled()

    def lose(self):
        self.driver.lose(1)
        self.where.tensor(1).fill_(1)
        self.driver.synchronize(0, self.driver.stream)


def attributes(driver, address):
    """What cuPointerGetAttributes says of it."""
    kinds = {TYPE: ctypes.c_uint, MANAGED: ctypes.c_uint, ORDINAL: ctypes.c_int}
    kinds.update({BEGIN: ctypes.c_uint64, SIZE: ctypes.c_size_t, MAPPED: ctypes.c_uint})
    kinds[OLD_IPC] = ctypes.c_uint
    values = [kind(0) for kind in kinds.values()]
    result = driver.call(
        "cuPointerGetAttributes",
        len(kinds),
        (ctypes.c_int * len(kinds))(*kinds),
        (ctypes.c_void_p * len(kinds))(*map(ctypes.addressof, values)),
        ctypes.c_uint64(address),
    )
    found = dict(zip(kinds, (value.value for value in values)))
    return {
        "result": result,
        "type": found[TYPE],
        "managed": found[MANAGED] & 255,
        "ordinal": found[ORDINAL],
        "offset": address - found[BEGIN] if found[SIZE] else None,
        "size": found[SIZE],
        "mapped": found[MAPPED] & 255,
        "old_ipc": found[OLD_IPC] & 255,
    }


def ask_addresses(driver):
    host = ctypes.create_string_buffer(64)
    yield (
        "host memory",
        attributes(driver, ctypes.addressof(host)),
        {
            "result": OK,
            "type": 0,
            "managed": 0,
            "ordinal": "open",
            "offset": None,
            "size": 0,
            "mapped": 0,
            "old_ipc": 0,
        },
    )
    one = {"result": OK, "type": 2, "managed": 0, "ordinal": 0, "mapped": 1, "old_ipc": 1}
    size = 4 * MIB
    memory = driver.device(size)
    yield "device memory", attributes(driver, memory), {**one, "offset": 0, "size": size}
    last = attributes(driver, memory + size - 1)
    yield "its last byte", last, {**one, "offset": size - 1, "size": size}
    memory = driver.managed(size)
    managed = {**one, "type": "open", "managed": 1, "offset": 0, "size": size}
    managed["old_ipc"] = 0
    yield "managed memory", attributes(driver, memory), managed
    memory = driver.pool(size)
    pool = {**one, "offset": "open", "size": "open", "old_ipc": 0}
    yield "memory of a pool", attributes(driver, memory), pool
    memory = driver.reserved(2 * size)
    whole = {**one, "offset": 0, "size": 2 * size, "old_ipc": 0}
    yield "a reservation, where it has memory", attributes(driver, memory), whole
    beyond = attributes(driver, memory + size)
    yield "a reservation, where it has none", {"mapped": beyond["mapped"]}, {"mapped": 0}


def ask_pinning(driver):
    host = ctypes.create_string_buffer(3 * 4096)
    begin = pointer((ctypes.addressof(host) + 4095) // 4096 * 4096)
    size = ctypes.c_size_t(4096)
    results = [driver.call("cuMemHostRegister_v2", begin, size, 1) for _ in range(2)]
    results += [driver.call("cuMemHostUnregister", begin) for _ in range(2)]
    yield "pinned twice, unpinned twice", results, [OK, REGISTERED, OK, NOT_REGISTERED]


def ask_batches(driver):
    """As device_cuda_copy.c does it: registered memory, no hints, the prototype of 12.8."""
    found, status, count = pointer(), ctypes.c_int(), 4
    driver.must(
        "cuGetProcAddress_v2",
        b"cuMemcpyBatchAsync",
        ctypes.byref(found),
        12080,
        ctypes.c_uint64(0),
        ctypes.byref(status),
    )
    yield "cuMemcpyBatchAsync of 12.8 is there", bool(found), True
    if not found:
        return
    batch = ctypes.CFUNCTYPE(
        ctypes.c_int,
        *[ctypes.c_void_p] * 3,
        ctypes.c_size_t,
        *[ctypes.c_void_p] * 2,
        ctypes.c_size_t,
        *[ctypes.c_void_p] * 2,
    )(found.value)
    host = ctypes.create_string_buffer((count + 1) * 4096)
    begin = (ctypes.addressof(host) + 4095) // 4096 * 4096
    driver.must("cuMemHostRegister_v2", pointer(begin), ctypes.c_size_t(count * 4096), 1)
    memory = driver.device(count * 8192)
    to = (ctypes.c_uint64 * count)(*[begin + 4096 * i for i in range(count)])
    source = (ctypes.c_uint64 * count)(*[memory + 8192 * i for i in range(count)])
    sizes = (ctypes.c_size_t * count)(*[1000] * count)
    chosen, first, failed = (ctypes.c_int * 6)(1, 0, 0, 0, 0, 1), ctypes.c_size_t(0), pointer()
    answers = []
    for stream in (driver.own, 1):
        answers.append(
            batch(
                *map(ctypes.addressof, (to, source, sizes)),
                count,
                ctypes.addressof(chosen),
                ctypes.addressof(first),
                1,
                ctypes.addressof(failed),
                stream,
            )
        )
    driver.must("cuStreamSynchronize", pointer(driver.own))
    driver.must("cuMemHostUnregister", pointer(begin))
    yield "a batch on a stream, on the legacy one", answers, [OK, INVALID_VALUE]


def new_event(driver):
    event = pointer()
    driver.must("cuEventCreate", ctypes.byref(event), 3)
    return event


def ask_streams(driver):
    event, blocking = new_event(driver), driver.blocking_stream()
    status = ctypes.c_int(-1)
    driver.capture(blocking, True)
    asked = driver.call("cuStreamIsCapturing", pointer(1), ctypes.byref(status))
    valid = driver.capture(blocking, False)
    yield "the legacy stream while a blocking one captures", [asked, valid], [IMPLICIT, True]
    per_thread = driver.call("cuEventRecord", event, pointer(2))
    yield "an event on the thread's default stream", per_thread, OK
    green = pointer(driver.green_stream())
    recorded = driver.call("cuEventRecord", event, green)
    yield "an event of the primary context on a green context's stream", recorded, "open"
    driver.must("cuEventRecord", event, pointer(driver.own))
    yield "a green context's stream waits", driver.call("cuStreamWaitEvent", green, event, 0), OK
    answers = [
        driver.call("cuStreamIsCapturing", green, ctypes.byref(status)),
        driver.call("cuStreamSynchronize", green),
    ]
    yield "a green context's stream is asked, and waited for", answers, [OK, OK]


def ask_lost(driver):
    """Last: afterwards this process can do nothing more."""
    event, memory = new_event(driver), driver.device(MIB)
    driver.lose()
    answers = {
        "cuEventRecord": driver.call("cuEventRecord", event, pointer(driver.own)),
        "cuStreamSynchronize": driver.call("cuStreamSynchronize", pointer(driver.own)),
    }
    lost = answers["cuEventRecord"]
    yield "calls in a lost context", len(set(answers.values())) == 1 and lost != OK, True
    yield "an address in a lost context", attributes(driver, memory)["result"], "open"


def matches(answer, manual):
    """Whether the answer is the manual's, where that has one."""
    if manual == "open":
        return True
    if isinstance(manual, dict) and isinstance(answer, dict):
        return all(matches(answer.get(key), value) for key, value in manual.items())
    return answer == manual


def main(arguments=None):
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--place", default="cuda", choices=("cuda", "standin"))
    options = parser.parse_args(arguments)
    driver = Real() if options.place == "cuda" else StandIn()
    for ask in (ask_addresses, ask_pinning, ask_batches, ask_streams, ask_lost):
        try:
            for question, answer, manual in ask(driver):
                ok = matches(answer, manual)
                figures = {"answer": answer, "manual": manual, "of": options.place}
                place.say(question, ok=ok, **figures)
        except (OSError, AttributeError) as error:  # the questions after this one were not asked
            place.say(ask.__name__, ok=False, of=options.place, why=str(error))


if __name__ == "__main__":
    main()
