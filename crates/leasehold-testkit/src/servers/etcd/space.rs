//! The space of a cluster: the disks of its members, and the quota of its database.

use serde_json::json;

use super::base64::base64;
use super::server::EtcdServer;
use crate::servers::disk::Disk;

/// The key that fills the database, and how long its value is.
const FILLER: &[u8] = b"filler";
const FILLER_BYTES: usize = 64 * 1024;

/// How often to write the filler before a test gives up.
const WRITES_MAX: usize = 1_000;

impl EtcdServer {
    /// The disk with the data of a member.
    ///
    /// # Panics
    ///
    /// If it was not started [on one](Self::quick_cluster_on_disks).
    #[must_use]
    pub fn disk(&self, member: usize) -> &Disk {
        let disk = self.members[member].disk.as_ref();
        disk.expect("the member was started on a disk of its own")
    }

    /// Whether a member answers, with the consent of a majority.
    pub(crate) fn answers(&self, member: usize) -> bool {
        self.members[member].is_healthy()
    }

    /// Makes the cluster refuse writes because its database is full, or no longer.
    ///
    /// # Panics
    ///
    /// If no member answers.
    pub fn be_full(&self, is_full: bool) {
        if is_full {
            let status = self.ask("/v3/maintenance/status", &json!({}));
            self.set_alarm("ACTIVATE", &status["header"]["member_id"]);
            return;
        }
        // Another member may have raised the alarm than the one that answers now.
        let get = json!({ "action": "GET", "alarm": "NOSPACE" });
        let raised = self.ask("/v3/maintenance/alarm", &get);
        for alarm in raised["alarms"].as_array().into_iter().flatten() {
            self.set_alarm("DEACTIVATE", &alarm["memberID"]);
        }
    }

    fn set_alarm(&self, action: &str, member: &serde_json::Value) {
        let alarm = json!({ "action": action, "alarm": "NOSPACE", "memberID": member });
        let _changed = self.ask("/v3/maintenance/alarm", &alarm);
    }

    /// Writes one key again and again until the database has no space for that.
    ///
    /// # Panics
    ///
    /// If no member answers, or the quota is too large.
    pub fn reach_quota(&self) {
        let value = base64(&[b'x'; FILLER_BYTES]);
        let put = json!({ "key": base64(FILLER), "value": value });
        let is_full = (0..WRITES_MAX).any(|_| !self.ask("/v3/kv/put", &put)["header"].is_object());
        assert!(is_full, "the quota is not reached: {}", self.last_words());
    }

    /// Makes room in the database and takes the alarm back, as an operator does.
    ///
    /// # Panics
    ///
    /// If no member answers.
    pub fn make_room(&self) {
        let status = self.ask("/v3/maintenance/status", &json!({}));
        let compact = json!({ "revision": status["header"]["revision"], "physical": true });
        let _compacted = self.ask("/v3/kv/compaction", &compact);
        let _smaller = self.ask("/v3/maintenance/defragment", &json!({}));
        self.be_full(false);
    }
}
