"""CUDA graphs and private pools over binpool: what they compute is what it is without them, however much is allocated in between."""

import gc
import sys
from collections.abc import Callable

import torch
from checks import Checks, use

SIZE = 1 << 20


def churn(kept: list[torch.Tensor], number: int) -> None:
    """Allocate and free tensors that overwrite whatever a graph has lost, on two streams."""
    side = churn.__dict__.setdefault("stream", torch.cuda.Stream())
    kept.append(torch.full((1 << (8 + number % 14),), -7.0, device="cuda"))
    with torch.cuda.stream(side):
        kept.append(torch.full((SIZE,), -9.0, device="cuda"))
    while len(kept) > 12:
        kept.pop(number % 7)


Work = Callable[[torch.Tensor], torch.Tensor]


def capture(work: Work, into: torch.Tensor, pool: object = None) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        result = work(into)
    return graph, result


def replays_with_other_allocations_between() -> None:
    static = torch.zeros(SIZE, device="cuda")

    def work(x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):  # Each step allocates and frees within the capture.
            x = (x * 2 + 1).relu() + torch.ones_like(x)
        return x

    graphs = [capture(work, static)]
    graphs.append(capture(lambda x: work(x) - 3, static, graphs[0][0].pool()))
    kept: list[torch.Tensor] = []
    for number in range(100):
        static.fill_(number)
        churn(kept, number)
        for graph, _ in graphs:
            graph.replay()
        churn(kept, number + 1)
        expected = 16 * number + 30
        assert graphs[0][1].eq(expected).all(), (number, graphs[0][1][0].item(), expected)
        assert graphs[1][1].eq(expected - 3).all(), (number, graphs[1][1][0].item(), expected - 3)
    torch.cuda.synchronize()


def a_reset_graph_gives_its_memory_back() -> None:
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    graph, result = capture(lambda x: (x + 1) * 2, torch.ones(64 << 20, device="cuda"))
    assert torch.cuda.memory_reserved() > before
    graph.replay()
    graph.reset()
    del graph, result
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() <= before + (2 << 20), (before, torch.cuda.memory_reserved())


def a_segment_of_a_reset_graph_waits_for_its_last_replay() -> None:
    static = torch.zeros(16 << 20, device="cuda")
    graph, result = capture(lambda x: (x + 1).sin().cos() * 0 + 5, static)
    side = torch.cuda.Stream()
    for _ in range(20):
        graph.replay()
    total = result.sum()
    graph.reset()
    del graph, result
    torch.cuda.empty_cache()
    with torch.cuda.stream(side):
        torch.full((64 << 20,), 1.0, device="cuda")
    assert total.item() == 5 * (16 << 20)


def make_graphed_callables() -> None:
    torch.manual_seed(0)
    layer = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 16)).cuda()
    plain = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 16)).cuda()
    plain.load_state_dict(layer.state_dict())
    graphed = torch.cuda.make_graphed_callables(layer, (torch.randn(32, 256, device="cuda"),))
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.05) for model in (layer, plain)]
    kept: list[torch.Tensor] = []
    for number in range(100):
        x = torch.randn(32, 256, device="cuda")
        losses = []
        for model, optimizer in zip((graphed, plain), optimizers, strict=True):
            optimizer.zero_grad(set_to_none=True)
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            churn(kept, number)
            losses.append(loss.item())
        assert abs(losses[0] - losses[1]) <= 1e-4 * abs(losses[1]) + 1e-6, (number, losses)


def compiled(mode: str) -> Callable[[], None]:
    def run() -> None:
        torch.manual_seed(0)
        torch._dynamo.reset()
        model = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.GELU(), torch.nn.Linear(256, 8)).cuda()
        fast = torch.compile(model, mode=mode)
        kept: list[torch.Tensor] = []
        for number in range(12):
            x = torch.randn(64, 128, device="cuda")
            fast(x).square().mean().backward()
            got = [p.grad.clone() for p in model.parameters()]
            model.zero_grad(set_to_none=True)
            model(x).square().mean().backward()
            churn(kept, number)
            for one, other in zip(got, (p.grad for p in model.parameters()), strict=True):
                torch.testing.assert_close(one, other, rtol=2e-3, atol=2e-4)
            model.zero_grad(set_to_none=True)

    return run


def graph_trees() -> None:
    """Several compiled functions in one pool of trees, whose inputs are outputs of others, and outputs that are kept."""
    torch._dynamo.reset()

    @torch.compile(mode="reduce-overhead")
    def one(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() + 1) * 2

    @torch.compile(mode="reduce-overhead")
    def two(x: torch.Tensor) -> torch.Tensor:
        return x.cos() - 3

    kept: list[torch.Tensor] = []
    for number in range(20):
        torch.compiler.cudagraph_mark_step_begin()
        x = torch.full((SIZE,), float(number), device="cuda")
        y = one(x)
        z = two(y) if number % 3 else two(two(y))
        expected = ((x.sin() + 1) * 2).cos() - 3
        expected = expected if number % 3 else expected.cos() - 3
        churn(kept, number)
        torch.testing.assert_close(z, expected, rtol=1e-4, atol=1e-4)


def mem_pool() -> None:
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        inside = torch.full((SIZE,), 3.0, device="cuda")
    kept: list[torch.Tensor] = []
    for number in range(30):
        churn(kept, number)
    assert inside.eq(3).all()
    segments = torch.cuda.memory_snapshot(pool.id)
    assert any(s["address"] <= inside.data_ptr() < s["address"] + s["total_size"] for s in segments)
    del inside, pool


def many_graphs_and_threads() -> None:
    import threading

    stop = threading.Event()

    def work() -> None:
        kept: list[torch.Tensor] = []
        number = 0
        while not stop.is_set():
            kept.append(torch.empty(1000 * (1 + number % 50), device="cuda"))
            del kept[:-5]
            number += 1

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for number in range(10):
            static = torch.full((SIZE,), float(number), device="cuda")
            graph = torch.cuda.CUDAGraph()
            torch.cuda.synchronize()
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                graph.capture_begin(capture_error_mode="thread_local")
                result = static * 2 + 1
                graph.capture_end()
            graph.replay()
            torch.cuda.synchronize()
            assert result.eq(2 * number + 1).all()
            del graph, result
    finally:
        stop.set()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    use(sys.argv[1:])
    checks = Checks("graphs")
    for check in [
        replays_with_other_allocations_between,
        a_reset_graph_gives_its_memory_back,
        a_segment_of_a_reset_graph_waits_for_its_last_replay,
        make_graphed_callables,
        mem_pool,
        many_graphs_and_threads,
    ]:
        checks.run(check.__name__, check)
    checks.run("graph_trees", graph_trees)
    for mode in ["default", "reduce-overhead", "max-autotune-no-cudagraphs"]:
        checks.run(f"compile {mode}", compiled(mode))
    checks.end()
