//! Serves a pool's counters to Prometheus, and asks for them once, as Prometheus would.

use std::{
    error::Error,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    thread,
};

use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
use binpool_mock::{MockBackend, MockDevice};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

fn main() -> Result<(), Box<dyn Error>> {
    let exporter = PrometheusBuilder::new().install_recorder()?;
    let backend = MockDevice::new().backend();
    let queue = backend.create_queue(QueueOrder::InOrder)?;
    let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    let _block = pool.allocate(3 << 20)?;

    // A program names a port here, and accepts for as long as it runs.
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let server = thread::spawn(move || answer(&listener.accept()?.0, &pool, &exporter));

    let mut scrape = TcpStream::connect(address)?;
    scrape.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut page = String::new();
    scrape.read_to_string(&mut page)?;
    server.join().map_err(|_| "the server has panicked")??;
    println!("{page}");
    assert!(page.contains("binpool_active_bytes{pool=\"arrays\"} 3145728"));
    Ok(())
}

/// Answers one request with what the counters are now.
fn answer(
    mut request: &TcpStream,
    pool: &MemoryPool<MockBackend>,
    exporter: &PrometheusHandle,
) -> std::io::Result<()> {
    // Prometheus has no more to say than the head, which ends with an empty line.
    let lines = BufReader::new(request).lines();
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    pool.publish_metrics("arrays");
    let page = exporter.render();
    let head =
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close\r\n";
    write!(
        request,
        "{head}Content-Length: {}\r\n\r\n{page}",
        page.len()
    )?;
    request.flush()
}

#[test]
fn the_example_runs() {
    main().unwrap();
}
