-- Writes the four tables beside this file, from an empty database:
--   psql -At -F $'\t' -f regenerate.sql
\o types.tsv
select oid, typname, typtype, typcategory, case when typispreferred then 1 else 0 end, typelem, typarray, typlen
  from pg_type where typnamespace = 'pg_catalog'::regnamespace and typtype in ('b', 'p', 'r', 'm') order by oid;
\o operators.tsv
select o.oid, oprname, oprleft, oprright, oprresult, oprcode::oid from pg_operator o where oprcode <> 0 order by o.oid;
\o functions.tsv
select p.oid, proname, array_to_string(proargtypes, ' '), prorettype, prokind, case when proisstrict then 1 else 0 end,
       provolatile, provariadic, pronargdefaults, case when proretset then 1 else 0 end,
       case when prolang = 14 then '@' || p.oid else prosrc end
  from pg_proc p
 where pronamespace = 'pg_catalog'::regnamespace
   and prorettype not in (2281, 2279, 3838, 2278, 3115, 325, 3310, 269, 2275)
   and not (proargtypes::oid[] && '{2281,2275,2279}'::oid[])
 order by p.oid;
\o casts.tsv
select castsource, casttarget, castfunc, castcontext, castmethod from pg_cast order by 1, 2;
\o
