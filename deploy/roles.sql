-- Roles for a store in PostgreSQL, each with the rights that it needs and no others. Run this as the owner of the
-- tables, after the first rows made them:
--   psql postgresql://owner@host/ads -f deploy/roles.sql
-- Then give a role to each login:
--   GRANT mcnet_serve TO service; GRANT mcnet_learn TO nightly;
DO $$
DECLARE
  one text;
BEGIN
  FOREACH one IN ARRAY ARRAY['mcnet_serve', 'mcnet_learn'] LOOP
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = one) THEN
      EXECUTE format('CREATE ROLE %I NOLOGIN', one);
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), one);
  END LOOP;
END
$$;

-- Serving: read everything, add feedback, and move the pointer when a request with the token asks for it.
GRANT SELECT ON heads, entries, keys, versions, history, runs, checkpoints, documents, served, told, mcnet_schema
  TO mcnet_serve;
GRANT INSERT ON entries, history TO mcnet_serve;
GRANT UPDATE ON heads TO mcnet_serve;
GRANT USAGE ON SEQUENCE entries_id_seq, history_id_seq TO mcnet_serve;

-- Learning: everything but changes of the tables themselves, which their owner alone may make.
GRANT SELECT, INSERT, UPDATE, DELETE
  ON heads, entries, keys, versions, history, runs, checkpoints, documents, served, told TO mcnet_learn;
GRANT SELECT ON mcnet_schema TO mcnet_learn;
GRANT USAGE ON SEQUENCE heads_id_seq, entries_id_seq, history_id_seq, runs_id_seq, served_id_seq, told_id_seq
  TO mcnet_learn;
