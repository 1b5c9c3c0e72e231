use std::time::SystemTime;

use admittance_admin::api::CertificateStatus;
use admittance_bcs::status::{DiscoveryStatus, EnsembleStatus, RegisteredNode, ServerHealth};
use admittance_cluster::{ClusterStatus, ClusterWatch, LeaderStatus, WatchState};
use admittance_fleet::{
    WebhooksStatus,
    audit::{AuditPass, AuditStatus},
};
use admittance_gateway::{
    AccountsStatus, GatewayCluster, GatewayStatus, KubernetesCluster, Peer, PeersStatus, TokensStatus,
};
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};

use super::*;
use crate::table::strip_styles;

fn moment(seconds: u64) -> Moment {
    Moment(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

fn from_json<T: DeserializeOwned>(json: Json) -> T {
    serde_json::from_value(json).unwrap()
}

fn plugin_json(version: &str) -> Json {
    json!({
        "type": "plugin",
        "summary": "image-policy",
        "name": "image-policy",
        "version": version,
        "source": "file:image_policy.wasm",
        "digest": "sha256:0123456789abcdef",
        "signature": "unrequired",
        "fromStore": false,
    })
}

fn stage_status(name: &str, hook: &Json) -> StageStatus {
    from_json(json!({
        "name": name,
        "hook": hook,
        "mode": "Enforce",
        "failurePolicy": "Fail",
        "state": "Idle",
        "calls": { "since": moment(0), "total": 0, "allowed": 0, "changed": 0, "denied": 0, "failed": 0 },
    }))
}

fn driver_status(stages: Vec<StageStatus>) -> DriverStatus {
    DriverStatus {
        table: table_status(stages),
        stopping: false,
        listeners: Vec::new(),
        upstream: Vec::new(),
        discovery: None,
        zookeeper: Vec::new(),
        registrations: Vec::new(),
        gateway: None,
        cluster: None,
        webhook_configurations: None,
        audit: None,
        leader: None,
        replicas: None,
        certificates: Vec::new(),
    }
}

fn table_status(stages: Vec<StageStatus>) -> Status {
    from_json(json!({
        "version": "0.1.0",
        "revision": 5,
        "hash": format!("sha256:{}", "3f1c".repeat(16)),
        "liveSince": moment(1000),
        "origin": { "type": "files" },
        "building": false,
        "tables": 1,
        "plugins": 2,
        "history": { "directory": "/var/lib/admittance", "revisions": 5 },
        "chains": [ { "name": "pods", "phase": "Mutating", "stages": stages } ],
    }))
}

#[test]
fn the_status_has_a_row_for_each_stage() {
    let mut images = stage_status("images", &plugin_json("1.2.0"));
    images.state = StageState::Failing;
    images.calls.total = 1200;
    images.calls.denied = 7;
    images.calls.failed = 2;
    images.calls.p50_microseconds = Some(26);
    images.calls.p99_microseconds = Some(1500);
    images.last_failure = from_json(json!({"at": moment(1040), "kind": "timeout", "message": "no verdict\nin 1s"}));
    let webhook = json!({"type": "webhook", "summary": "https://hook.ns.svc/a", "url": "https://hook.ns.svc/a"});
    let mut remote = stage_status("remote", &webhook);
    remote.mode = Mode::Audit;
    remote.state = StageState::Healthy;
    let status = driver_status(vec![images, remote]);
    assert_eq!(
        strip_styles(&super::status_text(&status, moment(1060))),
        "\
revision 5 (3f1c3f1c3f1c), live for 1m0s (1970-01-01T00:16:40Z), by a change of definitions or modules
admittance 0.1.0; 5 revisions, kept in /var/lib/admittance; 1 table and 2 plugins in memory

CHAIN  PHASE     STAGE   HOOK                   VERSION  DIGEST        MODE     STATE    CALLS  DENIED  FAILED     P50     P99  LAST FAILURE
pods   Mutating  images  image-policy           1.2.0    0123456789ab  Enforce  failing   1200       7       2  26.0µs  1.50ms  1970-01-01T00:17:20Z timeout: no verdict in 1s
pods   Mutating  remote  https://hook.ns.svc/a  -        -             Audit    healthy      0       0       0       -       -  -
"
    );
}

#[test]
fn the_status_shows_problems_first_and_in_red() {
    let mut status = driver_status(Vec::new());
    status.table.origin = Origin::RolledBack { to: 3 };
    status.table.by = Some("token ci".to_owned());
    status.table.building = true;
    status.table.history.directory = None;
    status.table.problem = from_json(json!({
        "since": moment(1000),
        "attempts": 2,
        "nextAttempt": moment(1075),
        "mistakes": ["chains/pods.yaml:3: spec.\u{1b}[2Jrules is missing"],
    }));
    let text = super::status_text(&status, moment(1060));
    assert!(text.contains(&format!("{BAD}chains/pods.yaml:3: spec. [2Jrules is missing{BAD:#}")));
    let text = strip_styles(&text);
    for line in [
        "by rollback to 3 (token ci)",
        "the newest definitions are not live, for 1m0s; 2 attempts, the next attempt is in 15s\n",
        "a new table is being built\n",
        "5 revisions, kept until the program ends",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    if let Some(problem) = &mut status.table.problem {
        problem.next_attempt = None;
    }
    assert!(super::status_text(&status, moment(1060)).contains("change the definitions or their modules to fix it"));
}

#[test]
fn disabled_stages_are_listed_with_their_reason() {
    let disabled = |stage: &str, audit: bool| {
        json!({
            "stage": stage,
            "audit": audit,
            "reason": "the registry is down",
            "by": "token ops",
            "since": moment(1000),
            "until": moment(2800),
        })
    };
    let mut images = stage_status("images", &plugin_json("1.2.0"));
    images.disabled = from_json(disabled("Mutating:pods/images", false));
    let mut sidecar = stage_status("sidecar", &plugin_json("1.0.0"));
    sidecar.disabled = from_json(disabled("Mutating:pods/sidecar", true));
    let mut status = driver_status(vec![images, sidecar]);
    status.table.disabled_missing = vec![from_json(disabled("Validating:pods/gone", false))];
    let text = strip_styles(&super::status_text(&status, moment(1060)));
    let line_end = "for 29m0s more (until 1970-01-01T00:46:40Z), by token ops: the registry is down\n";
    for line in [
        "Mutating:pods/images is disabled ",
        "Mutating:pods/sidecar is only audited ",
        "Validating:pods/gone is disabled (the live table does not have it) ",
    ] {
        assert!(text.contains(&format!("\n{line}{line_end}")), "{line}\n{text}");
    }
    let modes: Vec<_> = ["images", "sidecar"]
        .iter()
        .map(|stage| {
            text.lines()
                .find(|line| line.contains(&format!("Mutating  {stage}")))
                .unwrap()
        })
        .map(|line| line.contains("  disabled  ") || line.contains("  Audit     "))
        .collect();
    assert_eq!(modes, [true, true], "{text}");
}

#[test]
fn exceptions_are_listed_below_stages() {
    let mut status = driver_status(vec![stage_status("images", &plugin_json("1.2.0"))]);
    status.table.exceptions = from_json(json!([
        {
            "name": "legacy",
            "owner": "team-web",
            "reason": "ticket\n4711",
            "expires": moment(1060 + 90_000),
            "expired": false,
            "stages": ["Mutating:pods/images"],
        },
        {
            "name": "old",
            "owner": "team-web",
            "reason": "ticket 17",
            "expires": moment(1000),
            "expired": true,
            "stages": [],
            "unknown": ["old.yaml:8:5: spec.stages[0]: there is no stage pods/image"],
        },
    ]));
    let text = strip_styles(&super::status_text(&status, moment(1060)));
    let last_section = text.split("\n\n").last().unwrap();
    assert_eq!(
        last_section,
        "\
EXCEPTION  OWNER     EXPIRES                       STAGES                REASON
legacy     team-web  in 1d1h                       Mutating:pods/images  ticket 4711
old        team-web  expired 1970-01-01T00:16:40Z  none                  ticket 17
warning: old.yaml:8:5: spec.stages[0]: there is no stage pods/image
"
    );
}

#[test]
fn candidates_are_listed_below_stages() {
    let mut images = stage_status("images", &plugin_json("1.2.0"));
    images.candidate = from_json(json!({
        "plugin": plugin_json("1.3.0"),
        "share": "10%",
        "since": moment(0),
        "same": 90,
        "different": 10,
        "failed": 1,
        "passedOver": 0,
    }));
    let text = strip_styles(&super::status_text(&driver_status(vec![images]), moment(1060)));
    let last_section = text.split("\n\n").last().unwrap();
    assert_eq!(
        last_section,
        "\
CANDIDATE OF          PLUGIN        VERSION  DIGEST        SHARE  SAME  DIFFERENT  FAILED  PASSED OVER
Mutating:pods/images  image-policy  1.3.0    0123456789ab  10%      90         10       1            0
"
    );
}

#[test]
fn the_status_has_a_line_for_each_dependency() {
    let mut status = driver_status(Vec::new());
    let server = |number: u16, is_up| ServerHealth {
        server: format!("http://127.0.0.1:{number}"),
        is_up,
        since: None,
        problem: None,
    };
    let watch = |kind: &str, state: WatchState, problem: Option<&str>| ClusterWatch {
        kind: kind.to_owned(),
        state,
        since: moment(1000),
        objects: 3,
        heard: None,
        problem: problem.map(str::to_owned),
    };
    status.stopping = true;
    status.upstream = vec![server(1, true), server(2, false)];
    status.discovery = Some(DiscoveryStatus {
        path: "/bcs/scheduler".to_owned(),
        known: true,
        registrations: vec!["a".to_owned()],
        problem: Some("the session is\u{1b}[2J lost".to_owned()),
    });
    status.zookeeper = vec![EnsembleStatus {
        ensemble: "cluster".to_owned(),
        servers: "127.0.0.1:2181".to_owned(),
        state: "lost".to_owned(),
        since: moment(1000),
        problem: None,
    }];
    status.registrations = vec![RegisteredNode {
        ensemble: "cluster".to_owned(),
        below: "/bcs/driver".to_owned(),
        node: None,
        problem: None,
    }];
    status.gateway = Some(GatewayStatus {
        clusters: vec![GatewayCluster {
            cluster: "BCS-1".to_owned(),
            drivers: vec![server(3, true)],
            problem: None,
        }],
        discovery: None,
        problem: None,
        tokens: Some(TokensStatus {
            source: "file".to_owned(),
            count: Some(2),
            problem: None,
        }),
        accounts: Some(AccountsStatus {
            read: true,
            users: 1,
            clusters: 2,
            problem: Some("away".to_owned()),
        }),
        kubernetes: [(2, 0), (0, 1), (0, 0)]
            .into_iter()
            .zip(["plain-a", "plain-b", "plain-c"])
            .map(|((tunnels, gateways), id)| KubernetesCluster {
                cluster: id.to_owned(),
                tunnels,
                gateways,
                reported: None,
                servers: Vec::new(),
                problem: None,
            })
            .collect(),
        roles: None,
        peers: Some(PeersStatus {
            discovery: DiscoveryStatus {
                path: "/bcs/gateways".to_owned(),
                known: true,
                registrations: Vec::new(),
                problem: None,
            },
            gateways: vec![Peer {
                server: "https://10.0.0.6:8443".to_owned(),
                problem: Some("refused".to_owned()),
            }],
            accepted: 1,
            problem: None,
        }),
    });
    status.cluster = Some(ClusterStatus {
        server: "https://api".to_owned(),
        namespaces: watch("v1/Namespace", WatchState::Watching, None),
        kinds: vec![watch("v1/Node", WatchState::Down, Some("refused"))],
    });
    status.webhook_configurations = Some(WebhooksStatus {
        name: "hooks".to_owned(),
        is_keeper: true,
        last_write: Some(moment(1000)),
        problem: Some("refused".to_owned()),
    });
    status.audit = Some(AuditStatus {
        is_auditor: true,
        last: Some(AuditPass {
            at: moment(1000),
            seconds: 1.5,
            revision: 3,
            listed: 12,
        }),
        objects: [
            ("allowed".to_owned(), 9),
            ("denied".to_owned(), 2),
            ("failed".to_owned(), 0),
        ]
        .into(),
        problems: [("secrets".to_owned(), "forbidden".to_owned())].into(),
        ..AuditStatus::default()
    });
    status.leader = Some(LeaderStatus {
        lease: "admittance".to_owned(),
        holder: Some("web-1_x".to_owned()),
        is_self: true,
    });
    status.certificates = ["listen", "admin"]
        .into_iter()
        .zip([1060, 90_000])
        .map(|(name, end)| CertificateStatus {
            certificate: name.to_owned(),
            not_after: Some(moment(end)),
            problem: None,
        })
        .collect();
    let text = super::status_text(&status, moment(1060));
    assert!(text.contains(&format!("{BAD}down{BAD:#}")));
    assert!(text.contains(&format!("{BAD}expired at 1970-01-01T00:17:40Z{BAD:#}")));
    let text = strip_styles(&text);
    assert!(text.starts_with("the driver is stopping\n"), "{text}");
    let lines = "
upstream http://127.0.0.1:1: up
upstream http://127.0.0.1:2: down
discovery below /bcs/scheduler: 1 server; the session is [2J lost
ZooKeeper cluster (127.0.0.1:2181): lost for 1m0s
registration below /bcs/driver: missing
cluster BCS-1, driver http://127.0.0.1:3: up
tokens: 2 tokens
users and clusters: 1 user, 2 clusters; away
cluster plain-a: 2 tunnels
cluster plain-b: through another gateway
cluster plain-c: not connected
other gateways below /bcs/gateways: 1 gateway, 1 tunnel to this one
gateway https://10.0.0.6:8443: has no tunnel from this one; refused
watch of v1/Namespace at https://api: watching for 1m0s, 3 objects
watch of v1/Node at https://api: down for 1m0s, 3 objects; refused
leader, lease admittance: web-1_x (this replica)
webhook configurations hooks: kept by this replica, written at 1970-01-01T00:16:40Z; refused
audit: at 1970-01-01T00:16:40Z, objects: 9 allowed, 2 denied; secrets: forbidden
certificate of listen: expired at 1970-01-01T00:17:40Z
certificate of admin: expires soon, at 1970-01-02T01:00:00Z
";
    assert!(text.contains(lines), "{text}");
}

#[test]
fn the_status_of_the_fleet_has_a_row_for_each_replica() {
    let hash = |digits: &str| format!("sha256:{}", digits.repeat(16));
    let mut status = driver_status(Vec::new());
    assert_eq!(
        strip_styles(&super::fleet::fleet_text(&status, moment(1060))),
        "this driver goes live with a change by itself\n"
    );
    let replica = |name: &str, live: &str, prepared: &str| {
        json!({
            "name": name,
            "self": name == "web-1",
            "leader": name == "web-2",
            "alive": name != "web-3",
            "ready": live == "3f1c",
            "live": hash(live),
            "prepared": hash(prepared),
            "since": moment(1000),
        })
    };
    let mut late_replica = replica("web-4", "0aaa", "0aaa");
    late_replica["problem"] = json!("no route");
    status.replicas = Some(from_json(json!({
        "target": hash("3f1c"),
        "waiting": ["web-2 has not prepared 7b2d7b2d7b2d yet"],
        "replicas": [
            replica("web-1", "3f1c", "7b2d"),
            replica("web-2", "3f1c", "3f1c"),
            replica("web-3", "3f1c", "3f1c"),
            late_replica,
        ],
    })));
    assert_eq!(
        strip_styles(&super::fleet::fleet_text(&status, moment(1060))),
        "\
the replicas serve 3f1c3f1c3f1c
a change waits: web-2 has not prepared 7b2d7b2d7b2d yet

REPLICA       LIVE          PREPARED      STATE  LEADER  SINCE  PROBLEM
web-1 (this)  3f1c3f1c3f1c  7b2d7b2d7b2d  ready  -        1m0s  -
web-2         3f1c3f1c3f1c  -             ready  leader   1m0s  -
web-3         3f1c3f1c3f1c  -             gone   -        1m0s  -
web-4         0aaa0aaa0aaa  -             late   -        1m0s  no route
"
    );
}
