//! What the sessions of a role begin with (ALTER ROLE … SET), unless they ask for something else.

use crate::trace::CatalogPart;
use std::sync::Arc;

#[derive(Clone, Debug, Default)]
pub struct RoleSettings(Arc<[RoleSetting]>);

#[derive(Debug)]
struct RoleSetting {
    role: String,
    /// Whoever read the catalog is of this role.
    is_readers: bool,
    /// Name and value.
    setting: (String, String),
}

impl RoleSettings {
    pub fn from_answers(parts: &[CatalogPart]) -> RoleSettings {
        let parts = parts.iter().filter(|(name, _)| name == "role_settings");
        let settings = parts.flat_map(|(_, rows)| rows).filter_map(|row| {
            let text = |place: usize| row.get(place)?.clone();
            Some(RoleSetting {
                role: text(0)?,
                is_readers: text(1)? == "true",
                setting: (text(2)?, text(3)?),
            })
        });
        RoleSettings(settings.collect())
    }

    /// What a session of this role begins with, instead of what the server says; the last one counts.
    pub fn of<'r>(&'r self, role: &'r str) -> impl Iterator<Item = &'r (String, String)> {
        let of_role = self.0.iter().filter(move |known| known.role == role);
        of_role.map(|known| &known.setting)
    }

    /// Whether whoever read the server's settings got this one for a role of its own, and `role` has none.
    pub fn are_of_another(&self, role: &str, name: &str) -> bool {
        let is_named = |known: &&RoleSetting| known.setting.0.eq_ignore_ascii_case(name);
        let mut named = self.0.iter().filter(is_named);
        named.clone().any(|known| known.is_readers) && !named.any(|known| known.role == role)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_of_one_role_is_not_that_of_another() {
        let row = |cells: [&str; 4]| cells.map(|cell| Some(cell.to_owned())).to_vec();
        let settings = RoleSettings::from_answers(&[(
            "role_settings".to_owned(),
            vec![
                row(["clerk", "false", "search_path", "other"]),
                row(["clerk", "false", "search_path", "other, public"]),
                row(["watcher", "true", "search_path", "watched"]),
            ],
        )]);
        let of_clerk: Vec<&str> = settings.of("clerk").map(|(_, value)| value.as_str()).collect();
        assert_eq!(of_clerk, ["other", "other, public"]);
        assert!(settings.are_of_another("somebody", "search_path"));
        assert!(!settings.are_of_another("clerk", "search_path"));
        assert!(!settings.are_of_another("watcher", "search_path"));
        assert!(!settings.are_of_another("somebody", "timezone"));
    }
}
