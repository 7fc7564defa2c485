//! The questions that read a catalog: name and SQL. Every answer column is text.

/// Name and SQL of each part of the catalog, in the order in which they are read. They are meant to run in the
/// same REPEATABLE READ transaction as the copies of the tables.
pub const QUERIES: &[(&str, &str)] = &[
    ("version", VERSION),
    (
        "sequences",
        "select s.seqrelid::text, s.seqstart::text, s.seqincrement::text, s.seqmin::text, s.seqmax::text, s.seqcache::text, d.refobjid::text, d.refobjsubid::text, case when pg_catalog.has_sequence_privilege(s.seqrelid, 'SELECT') then pg_catalog.pg_sequence_last_value(s.seqrelid)::text end from pg_catalog.pg_sequence s join pg_catalog.pg_class c on c.oid = s.seqrelid and c.relpersistence = 'p' left join pg_catalog.pg_depend d on d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass and d.objid = s.seqrelid and d.deptype in ('a', 'i') and d.refobjsubid > 0 order by s.seqrelid",
    ),
    (
        "database",
        "select datcollate, pg_encoding_to_char(encoding), coalesce(to_jsonb(d) ->> 'datlocprovider', 'c') from pg_catalog.pg_database d where datname = current_database()",
    ),
    (
        "namespaces",
        "select n.oid::text, n.nspname::text from pg_catalog.pg_namespace n where n.nspname not in ('pg_catalog', 'information_schema') and n.nspname !~ '^pg_(toast|temp)' order by n.oid",
    ),
    (
        "tables",
        "select c.oid::text, n.nspname::text, c.relname::text, c.relkind::text, c.relrowsecurity::text, c.relispartition::text, pg_catalog.pg_get_expr(c.relpartbound, c.oid), p.partstrat::text, pg_catalog.array_to_string(p.partattrs::int2[], ','), pg_catalog.pg_get_partition_constraintdef(c.oid), c.relpersistence::text from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace left join pg_catalog.pg_partitioned_table p on p.partrelid = c.oid where c.relkind in ('r', 'p', 'v', 'm', 'f', 'S') and n.nspname not in ('pg_catalog', 'information_schema') and n.nspname !~ '^pg_(toast|temp)' order by c.oid",
    ),
    (
        "columns",
        "select a.attrelid::text, a.attnum::text, a.attname::text, a.atttypid::text, a.atttypmod::text, a.attnotnull::text, pg_catalog.pg_get_expr(d.adbin, d.adrelid), a.attidentity::text, a.attgenerated::text, coalesce(l.collname::text, ''), coalesce(l.collcollate::text, ''), coalesce(to_jsonb(l) ->> 'collisdeterministic', 'true') from pg_catalog.pg_attribute a join pg_catalog.pg_class c on c.oid = a.attrelid join pg_catalog.pg_namespace n on n.oid = c.relnamespace left join pg_catalog.pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum left join pg_catalog.pg_collation l on l.oid = a.attcollation where a.attnum > 0 and not a.attisdropped and c.relkind in ('r', 'p', 'v', 'm', 'f') and n.nspname not in ('pg_catalog', 'information_schema') and n.nspname !~ '^pg_(toast|temp)' order by a.attrelid, a.attnum",
    ),
    (
        "indexes",
        "select i.indrelid::text, c.relname::text, i.indisunique::text, i.indisprimary::text, i.indimmediate::text, i.indisexclusion::text, pg_catalog.array_to_string(i.indkey::int2[], ','), i.indnkeyatts::text, pg_catalog.pg_get_expr(i.indpred, i.indrelid), (select pg_catalog.string_agg(pg_catalog.pg_get_indexdef(i.indexrelid, k, true), E'\\x1f' order by k) from pg_catalog.generate_series(1, i.indnkeyatts) k), (exists (select 1 from pg_catalog.pg_constraint o where o.conindid = i.indexrelid and o.contype in ('p', 'u', 'x')))::text, pg_catalog.pg_get_indexdef(i.indexrelid) from pg_catalog.pg_index i join pg_catalog.pg_class c on c.oid = i.indexrelid join pg_catalog.pg_namespace n on n.oid = c.relnamespace where i.indislive and n.nspname not in ('pg_catalog', 'information_schema') and n.nspname !~ '^pg_(toast|temp)' order by i.indexrelid",
    ),
    (
        "constraints",
        "select o.conrelid::text, o.conname::text, o.contype::text, pg_catalog.array_to_string(o.conkey, ','), o.confrelid::text, pg_catalog.array_to_string(o.confkey, ','), o.confupdtype::text, o.confdeltype::text, o.confmatchtype::text, o.condeferrable::text, o.condeferred::text, o.convalidated::text, pg_catalog.pg_get_expr(o.conbin, o.conrelid), o.conparentid::text from pg_catalog.pg_constraint o join pg_catalog.pg_namespace n on n.oid = o.connamespace where o.conrelid <> 0 and o.contype in ('c', 'f', 'x') and n.nspname not in ('pg_catalog', 'information_schema') and n.nspname !~ '^pg_(toast|temp)' order by o.oid",
    ),
    (
        "types",
        "select t.oid::text, n.nspname::text, t.typname::text, t.typtype::text, t.typbasetype::text, t.typtypmod::text, t.typnotnull::text, (exists (select 1 from pg_catalog.pg_constraint o where o.contypid = t.oid))::text, t.typarray::text, t.typelem::text, t.typcategory::text from pg_catalog.pg_type t join pg_catalog.pg_namespace n on n.oid = t.typnamespace where n.nspname not in ('pg_catalog', 'information_schema') and n.nspname !~ '^pg_(toast|temp)' order by t.oid",
    ),
    (
        "enums",
        "select e.enumtypid::text, e.enumlabel::text from pg_catalog.pg_enum e order by e.enumtypid, e.enumsortorder",
    ),
    (
        "views",
        "select c.oid::text, pg_catalog.pg_get_viewdef(c.oid) from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace where c.relkind in ('v', 'm') and n.nspname not in ('pg_catalog', 'information_schema') and n.nspname !~ '^pg_(toast|temp)' order by c.oid",
    ),
    (
        "triggers",
        "select t.tgrelid::text, t.tgname::text, t.tgtype::text, n.nspname::text, p.proname::text from pg_catalog.pg_trigger t join pg_catalog.pg_proc p on p.oid = t.tgfoid join pg_catalog.pg_namespace n on n.oid = p.pronamespace where not t.tgisinternal and t.tgenabled <> 'D' order by t.oid",
    ),
    (
        "event_triggers",
        "select n.nspname::text, p.proname::text from pg_catalog.pg_event_trigger e join pg_catalog.pg_proc p on p.oid = e.evtfoid join pg_catalog.pg_namespace n on n.oid = p.pronamespace where e.evtenabled <> 'D' order by e.oid",
    ),
    (
        "rules",
        "select r.ev_class::text, r.rulename::text, r.ev_type::text from pg_catalog.pg_rewrite r join pg_catalog.pg_class c on c.oid = r.ev_class join pg_catalog.pg_namespace n on n.oid = c.relnamespace where not (r.rulename = '_RETURN' and c.relkind in ('v', 'm')) and n.nspname not in ('pg_catalog', 'information_schema') order by r.oid",
    ),
    (
        "functions",
        "select p.oid::text, n.nspname::text, p.proname::text, l.lanname::text, p.prokind::text, p.provolatile::text, p.proisstrict::text, p.prorettype::text, p.proretset::text, pg_catalog.array_to_string(coalesce(p.proallargtypes, p.proargtypes::oid[]), ','), pg_catalog.array_to_string(p.proargmodes, ','), pg_catalog.array_to_string(p.proargnames, ',', ''), p.pronargdefaults::text, p.prosrc, case when p.prokind in ('f', 'p') then pg_catalog.pg_get_functiondef(p.oid) end, (p.prosecdef or p.proconfig is not null)::text from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace join pg_catalog.pg_language l on l.oid = p.prolang where n.nspname not in ('pg_catalog', 'information_schema') and n.nspname !~ '^pg_(toast|temp)' order by p.oid",
    ),
    (
        "role_settings",
        "select r.rolname::text, (r.rolname = session_user)::text, pg_catalog.split_part(c, '=', 1), pg_catalog.substr(c, pg_catalog.strpos(c, '=') + 1) from pg_catalog.pg_db_role_setting s join pg_catalog.pg_roles r on r.oid = s.setrole left join pg_catalog.pg_database d on d.oid = s.setdatabase cross join lateral pg_catalog.unnest(s.setconfig) with ordinality u (c, n) where d.datname is null or d.datname = current_database() order by r.rolname, s.setdatabase, u.n",
    ),
    (
        "inheritance",
        "select h.inhrelid::text, h.inhparent::text from pg_catalog.pg_inherits h order by h.inhparent, h.inhseqno, h.inhrelid",
    ),
];

/// Says the same as long as nothing in the catalog is changed, and never again what it has said before: every change
/// leaves another `xmin`. Temporary tables come and go, and are not part of it. TRUNCATE and CREATE INDEX are.
pub const VERSION: &str = "select md5(coalesce(string_agg(v, ' ' order by v), '')) from ( select 'n' || n.oid || ':' || n.xmin as v from pg_catalog.pg_namespace n where n.nspname !~ '^pg_(toast|temp|toast_temp)_' union all select 'c' || c.oid || ':' || c.xmin from pg_catalog.pg_class c where c.relkind in ('r','p','v','m','f') and c.relpersistence <> 't' and c.oid >= 16384 union all select 'a' || a.attrelid || ',' || a.attnum || ':' || a.xmin from pg_catalog.pg_attribute a join pg_catalog.pg_class c on c.oid = a.attrelid where c.relkind in ('r','p','v','m','f') and c.relpersistence <> 't' and c.oid >= 16384 union all select 'd' || d.oid || ':' || d.xmin from pg_catalog.pg_attrdef d join pg_catalog.pg_class c on c.oid = d.adrelid where c.relpersistence <> 't' union all select 'i' || i.indexrelid || ':' || i.xmin from pg_catalog.pg_index i join pg_catalog.pg_class c on c.oid = i.indrelid where c.relkind in ('r','p','m') and c.relpersistence <> 't' and c.oid >= 16384 union all select 'o' || o.oid || ':' || o.xmin from pg_catalog.pg_constraint o left join pg_catalog.pg_class c on c.oid = o.conrelid where c.relpersistence is distinct from 't' and o.oid >= 16384 union all select 't' || t.oid || ':' || t.xmin from pg_catalog.pg_type t join pg_catalog.pg_namespace n on n.oid = t.typnamespace where n.nspname !~ '^pg_(toast|temp)' and t.oid >= 16384 union all select 'e' || e.oid || ':' || e.xmin from pg_catalog.pg_enum e union all select 'g' || g.oid || ':' || g.xmin from pg_catalog.pg_trigger g join pg_catalog.pg_class c on c.oid = g.tgrelid where c.relpersistence <> 't' union all select 'r' || r.oid || ':' || r.xmin from pg_catalog.pg_rewrite r join pg_catalog.pg_class c on c.oid = r.ev_class where c.relpersistence <> 't' and r.oid >= 16384 union all select 'y' || y.oid || ':' || y.xmin from pg_catalog.pg_policy y union all select 'f' || p.oid || ':' || p.xmin from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace where n.nspname !~ '^pg_temp' and p.oid >= 16384 union all select 'h' || h.inhrelid || ',' || h.inhparent || ':' || h.xmin from pg_catalog.pg_inherits h join pg_catalog.pg_class c on c.oid = h.inhrelid where c.relpersistence <> 't' union all select 'p' || p.partrelid || ':' || p.xmin from pg_catalog.pg_partitioned_table p union all select 's' || s.seqrelid || ':' || s.xmin from pg_catalog.pg_sequence s join pg_catalog.pg_class c on c.oid = s.seqrelid where c.relpersistence <> 't' union all select 'x' || x.oid || ':' || x.xmin from pg_catalog.pg_event_trigger x union all select 'l' || l.oid || ':' || l.xmin from pg_catalog.pg_collation l where l.oid >= 16384 union all select 'z' || z.oid || ':' || z.xmin from pg_catalog.pg_operator z where z.oid >= 16384 union all select 'k' || k.oid || ':' || k.xmin from pg_catalog.pg_cast k where k.oid >= 16384 union all select 'w' || w.oid || ':' || w.xmin from pg_catalog.pg_opclass w where w.oid >= 16384 union all select 'b' || b.setdatabase || ',' || b.setrole || ':' || b.xmin from pg_catalog.pg_db_role_setting b ) versions";
