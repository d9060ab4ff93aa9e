//! Alarms on the wire (etcd: `server/etcdserver/apply/backend.go`).

use gitcd_mvcc::alarms::Alarm;

use super::Backend;
use crate::proto::etcdserverpb as pb;
use crate::proto::etcdserverpb::alarm_request::AlarmAction;

impl Backend {
    /// Lists, raises or clears alarms; invalid requests do nothing, as in etcd.
    pub(super) fn alarm_answer(&self, request: pb::AlarmRequest) -> Vec<pb::AlarmMember> {
        let alarms = self.store.alarms();
        let kind = match pb::AlarmType::try_from(request.alarm) {
            Ok(pb::AlarmType::Nospace) => Some(Alarm::NoSpace),
            Ok(pb::AlarmType::Corrupt) => Some(Alarm::Corrupt),
            Ok(pb::AlarmType::None) | Err(_) => None,
        };
        let member = request.member_id;
        match (AlarmAction::try_from(request.action), kind) {
            (Ok(AlarmAction::Get), kind) => alarms
                .list()
                .into_iter()
                .filter(|(alarm, _)| kind.is_none_or(|kind| kind == *alarm))
                .map(wire)
                .collect(),
            (Ok(AlarmAction::Activate), Some(kind)) => {
                alarms.raise(kind, member);
                vec![wire((kind, member))]
            }
            (Ok(AlarmAction::Deactivate), Some(kind)) if alarms.clear(kind, member) => vec![wire((kind, member))],
            _ => Vec::new(),
        }
    }

    /// Returns the raised alarms as etcd's status lists them.
    pub(super) fn alarm_errors(&self) -> impl Iterator<Item = String> {
        let text = |(alarm, member): (Alarm, u64)| format!("memberID:{member} alarm:{} ", alarm.name());
        self.store.alarms().list().into_iter().map(text)
    }
}

fn wire((alarm, member_id): (Alarm, u64)) -> pb::AlarmMember {
    let alarm = match alarm {
        Alarm::NoSpace => pb::AlarmType::Nospace,
        Alarm::Corrupt => pb::AlarmType::Corrupt,
    };
    pb::AlarmMember { member_id, alarm: alarm as i32 }
}
