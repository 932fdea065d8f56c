BEGIN TRANSACTION;
CREATE TABLE checkpoints (
	head INTEGER NOT NULL, 
	ticks INTEGER NOT NULL, 
	document TEXT NOT NULL, 
	sketches BLOB NOT NULL, 
	PRIMARY KEY (head, ticks), 
	FOREIGN KEY(head) REFERENCES heads (id)
);
CREATE TABLE documents (
	head INTEGER NOT NULL, 
	kind TEXT NOT NULL, 
	name TEXT NOT NULL, 
	document TEXT NOT NULL, 
	PRIMARY KEY (head, kind, name), 
	FOREIGN KEY(head) REFERENCES heads (id)
);
CREATE TABLE entries (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	head INTEGER NOT NULL, 
	period TEXT NOT NULL, 
	source TEXT NOT NULL, 
	age DOUBLE NOT NULL, 
	digest TEXT NOT NULL, 
	rows BIGINT NOT NULL, 
	weight DOUBLE NOT NULL, 
	positives DOUBLE NOT NULL, 
	largest_weight DOUBLE, 
	merged_periods INTEGER DEFAULT '1' NOT NULL, 
	sketch BLOB NOT NULL, 
	CONSTRAINT entries_key UNIQUE (head, source, period, age), 
	FOREIGN KEY(head) REFERENCES heads (id)
);
CREATE TABLE heads (
	id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	settings TEXT DEFAULT '{}' NOT NULL, 
	shape TEXT, 
	first_period TEXT, 
	heaviest DOUBLE, 
	pointer TEXT DEFAULT '{}' NOT NULL, 
	moves BIGINT DEFAULT '0' NOT NULL, 
	fence BIGINT DEFAULT '0' NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (name)
);
INSERT INTO "heads" VALUES(1,'ctr','{"every": "1d"}',NULL,NULL,NULL,'{}',0,0);
CREATE TABLE history (
	id INTEGER NOT NULL, 
	head INTEGER NOT NULL, 
	line TEXT NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(head) REFERENCES heads (id)
);
CREATE TABLE keys (
	head INTEGER NOT NULL, 
	source TEXT NOT NULL, 
	period TEXT NOT NULL, 
	age DOUBLE NOT NULL, 
	digest TEXT NOT NULL, 
	PRIMARY KEY (head, source, period, age), 
	FOREIGN KEY(head) REFERENCES heads (id)
);
CREATE TABLE mcnet_schema (
	version_num TEXT NOT NULL, 
	PRIMARY KEY (version_num)
);
INSERT INTO "mcnet_schema" VALUES('0001');
CREATE TABLE runs (
	id INTEGER NOT NULL, 
	head INTEGER NOT NULL, 
	line TEXT NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(head) REFERENCES heads (id)
);
CREATE TABLE versions (
	head INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	about TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	model BLOB NOT NULL, 
	PRIMARY KEY (head, number), 
	FOREIGN KEY(head) REFERENCES heads (id)
);
CREATE INDEX entries_period ON entries (head, period);
CREATE INDEX keys_period ON keys (head, period);
CREATE INDEX history_head ON history (head, id);
CREATE INDEX runs_head ON runs (head, id);
DELETE FROM "sqlite_sequence";
COMMIT;
