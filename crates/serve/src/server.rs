//! A server, from its start to its end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::app::App;
use crate::engine::Engine;
use crate::event::{Observer, ServeEvent, tell};
use crate::files::Files;
use crate::http::{Places, serve_connection, turn_away};
use crate::metrics::Metrics;
use crate::page::Pages;
use crate::routes::router;
use crate::settings::ServeSettings;

/// Handle that stops a server, from any thread.
#[derive(Debug, Clone)]
pub struct Stop(watch::Sender<bool>);

impl Stop {
    /// Stops the server: it accepts no more work, finishes accepted work, and ends.
    pub fn stop(&self) {
        // `send_replace` stores the value even if the server does not listen to the channel yet.
        self.0.send_replace(true);
    }
}

/// Loaded runs, and a socket to which clients can already connect.
pub struct Server {
    pub(crate) app: Arc<App>,
    runtime: Runtime,
    listener: TcpListener,
    address: SocketAddr,
    stop: watch::Sender<bool>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Server {
    /// Opens the socket, and loads the runs.
    ///
    /// # Errors
    /// When a run cannot be loaded, two have the same name, or the address is taken.
    pub fn start(settings: ServeSettings, observer: Observer) -> Result<Self> {
        ensure!(!settings.runs.is_empty(), "no run to serve is named");
        if settings.api_key.as_ref().is_some_and(|key| key.trim().is_empty()) {
            bail!("the key is empty: anybody would know it");
        }
        let names = names(&settings)?;
        if settings.runs.len() > 1 {
            // Recipes may request different numbers of threads, but there is only one pool.
            taper_run::checks::choose_threads(0)?;
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .context("cannot start to serve")?;
        // The socket is opened before the runs are loaded: if the address is taken, no minutes are
        // spent on loading first.
        let listener = runtime
            .block_on(TcpListener::bind(settings.address))
            .with_context(|| format!("cannot listen at {}", settings.address))?;
        let address = listener.local_addr().context("cannot tell the address")?;
        let metrics = Arc::new(Metrics::new());
        let mut engines = Vec::with_capacity(names.len());
        for (root, name) in settings.runs.iter().zip(&names) {
            let begun = Instant::now();
            let engine = Engine::start(root, name, &settings, &metrics, &observer)?;
            let seconds = begun.elapsed().as_secs_f64();
            tell(&observer, &ServeEvent::Loaded { run: &engine.info, seconds });
            engines.push(engine);
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let documents = Arc::new(Semaphore::new(settings.limits.documents));
        let app = Arc::new(App {
            settings,
            engines,
            metrics,
            observer,
            pages: Pages::new()?,
            files: Files::default(),
            documents,
            // The numbers begin at the current time, so that they, and the random draws, differ
            // from those of an earlier server.
            draws: AtomicU64::new(now.as_micros() as u64),
        });
        let (stop, _) = watch::channel(false);
        Ok(Self { app, runtime, listener, address, stop })
    }

    /// Address of the socket.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Handle that stops this server.
    #[must_use]
    pub fn stop(&self) -> Stop {
        Stop(self.stop.clone())
    }

    /// Answers requests until the server is stopped, and then finishes accepted work.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn serve(self) -> Result<()> {
        let Self { app, runtime, listener, address, stop } = self;
        tell(&app.observer, &ServeEvent::Listening { address });
        let cut_off = runtime.block_on(accept(&app, listener, &stop));
        // Dropping the runtime ends the remaining connections. The threads of the runs then drop
        // the work for these connections.
        drop(runtime);
        app.engines.iter().for_each(Engine::finish);
        tell(&app.observer, &ServeEvent::Stopped { cut_off });
        Ok(())
    }
}

/// Serves connections until the server is stopped. Then waits for the open connections, at most for
/// the time `farewell`, and returns the number of connections that are still open.
async fn accept(app: &Arc<App>, listener: TcpListener, stop: &watch::Sender<bool>) -> usize {
    let router = router(app);
    let places = Arc::new(Semaphore::new(app.limits().connections));
    let clients = Places::new(app.limits().client_connections);
    let mut connections = JoinSet::new();
    let mut asked = stop.subscribe();
    loop {
        let next = async {
            // Acquiring fails only for a closed semaphore, and this one is never closed.
            let place = Arc::clone(&places).acquire_owned().await.ok();
            (place, connect(&listener).await)
        };
        tokio::select! {
            (place, (stream, client)) = next => match clients.take(client.ip()) {
                Some(share) => {
                    let (app, router, stop) = (Arc::clone(app), router.clone(), stop.subscribe());
                    connections.spawn(async move {
                        app.metrics.connected();
                        let transfer = app.limits().transfer;
                        serve_connection(stream, client, router, transfer, stop).await;
                        app.metrics.disconnected();
                        drop((place, share));
                    });
                }
                None => turn_away(stream, &clients, &mut connections),
            },
            Some(_) = connections.join_next() => {}
            _ = asked.wait_for(|stop| *stop) => break,
        }
    }
    drop(listener);
    let waiting = app.engines.iter().map(Engine::waiting).sum();
    tell(&app.observer, &ServeEvent::Stopping { waiting });
    let all = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(app.limits().farewell, all).await;
    connections.len()
}

/// Accepts the next client. After a failure, tries again, because failures are temporary: for
/// example, too many files may be open.
async fn connect(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Names of the runs, which are the names of their folders.
///
/// # Errors
/// When two runs have the same name.
fn names(settings: &ServeSettings) -> Result<Vec<String>> {
    let mut names: Vec<String> = Vec::with_capacity(settings.runs.len());
    for root in &settings.runs {
        let whole =
            root.canonicalize().with_context(|| format!("cannot open {}", root.display()))?;
        let name = whole.file_name().unwrap_or(whole.as_os_str()).to_string_lossy().into_owned();
        if names.contains(&name) {
            bail!(
                "two runs are named {name}, so clients could not distinguish them; rename a \
                   folder"
            );
        }
        names.push(name);
    }
    Ok(names)
}
