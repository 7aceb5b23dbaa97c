-- The metastore of a home that schema version 1 wrote.
CREATE TABLE millstream_answers (
	seq BIGINT NOT NULL, 
	stream TEXT NOT NULL, 
	committed_at BIGINT NOT NULL, 
	batch BIGINT, 
	path TEXT NOT NULL, 
	index_offset BIGINT NOT NULL, 
	index_length BIGINT NOT NULL, 
	rows BIGINT NOT NULL, 
	queries BIGINT NOT NULL, 
	PRIMARY KEY (seq)
);
INSERT INTO "millstream_answers" VALUES(1,'purchases',1794807243720695,2,'answers/purchases-2-000a7848fbc1.answers',496,1328,5,1);
INSERT INTO "millstream_answers" VALUES(2,'purchases',1794807245918056,3,'answers/purchases-3-52a8da8e353a.answers',528,1328,11,1);
INSERT INTO "millstream_answers" VALUES(3,'purchases',1794807247075900,4,'answers/purchases-4-b8862cbdbfe8.answers',496,1328,4,1);
INSERT INTO "millstream_answers" VALUES(4,'purchases',1794807247952535,5,'answers/purchases-5-67e25be07dc1.answers',512,1328,7,1);
INSERT INTO "millstream_answers" VALUES(5,'purchases',1794807248950670,6,'answers/purchases-6-2f17d3197fd0.answers',512,1328,8,1);
INSERT INTO "millstream_answers" VALUES(6,'purchases',1794807249955320,7,'answers/purchases-7-24eb55781554.answers',488,1328,3,1);
INSERT INTO "millstream_answers" VALUES(7,'purchases',1794807251026308,8,'answers/purchases-8-889efea48c9e.answers',520,1328,9,1);
INSERT INTO "millstream_answers" VALUES(8,'purchases',1794807252198851,9,'answers/purchases-9-c5665a5cd13f.answers',504,1328,6,1);
INSERT INTO "millstream_answers" VALUES(9,'purchases',1794807253069577,10,'answers/purchases-10-5044349dd26d.answers',488,1328,3,1);
INSERT INTO "millstream_answers" VALUES(10,'purchases',1794807253396144,NULL,'answers/purchases-fire-fffd6725c379.answers',1600,1440,21,3);
INSERT INTO "millstream_answers" VALUES(11,'purchases',1794807253777964,11,'answers/purchases-11-d56d972e4913.answers',512,1328,7,1);
CREATE TABLE millstream_bucket_files (
	path TEXT NOT NULL, 
	stream TEXT NOT NULL, 
	batch BIGINT NOT NULL, 
	watermark BIGINT, 
	buckets TEXT NOT NULL, 
	PRIMARY KEY (path)
);
INSERT INTO "millstream_bucket_files" VALUES('buckets/purchases/8-25e4579f7fd1.bucket','purchases',8,1767225603108000,'[["g-1",2,1767225604000000,1767225605000000,816,872,8]]');
INSERT INTO "millstream_bucket_files" VALUES('buckets/purchases/9-cffa196cecc3.bucket','purchases',9,1767225603708000,'[["g-1",2,1767225604000000,1767225605000000,0,872,8]]');
INSERT INTO "millstream_bucket_files" VALUES('buckets/purchases/10-59cc2579bd6d.bucket','purchases',10,1767225604308000,'[["g-1",2,1767225604000000,1767225605000000,0,816,8],["g-1",2,1767225605000000,1767225606000000,816,816,8]]');
INSERT INTO "millstream_bucket_files" VALUES('buckets/purchases/8-compact-67ecbceee384.bucket','purchases',8,1767225603108000,'[["g-1",2,1767225603000000,1767225604000000,0,816,8]]');
INSERT INTO "millstream_bucket_files" VALUES('buckets/purchases/11-5d5a2e8ca25f.bucket','purchases',11,1767225604908000,'[["g-1",2,1767225605000000,1767225606000000,0,816,8],["g-1",2,1767225606000000,1767225607000000,816,976,3]]');
CREATE TABLE millstream_closings (
	stream TEXT NOT NULL, 
	batch BIGINT NOT NULL, 
	step BIGINT NOT NULL, 
	watermark BIGINT NOT NULL, 
	PRIMARY KEY (stream, batch, step)
);
INSERT INTO "millstream_closings" VALUES('purchases',1,0,1767225599508000);
INSERT INTO "millstream_closings" VALUES('purchases',2,0,1767225600108000);
INSERT INTO "millstream_closings" VALUES('purchases',3,0,1767225600708000);
INSERT INTO "millstream_closings" VALUES('purchases',4,0,1767225601308000);
INSERT INTO "millstream_closings" VALUES('purchases',5,0,1767225601908000);
INSERT INTO "millstream_closings" VALUES('purchases',6,0,1767225602508000);
INSERT INTO "millstream_closings" VALUES('purchases',7,0,1767225603108000);
INSERT INTO "millstream_closings" VALUES('purchases',8,0,1767225603708000);
INSERT INTO "millstream_closings" VALUES('purchases',9,0,1767225604308000);
INSERT INTO "millstream_closings" VALUES('purchases',10,0,1767225604908000);
INSERT INTO "millstream_closings" VALUES('purchases',11,0,1767225605508000);
CREATE TABLE millstream_cursors (
	name TEXT NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY (name)
);
CREATE TABLE millstream_dead_letters (
	path TEXT NOT NULL, 
	stream TEXT NOT NULL, 
	batch BIGINT NOT NULL, 
	PRIMARY KEY (path)
);
CREATE TABLE millstream_definitions (
	id TEXT NOT NULL, 
	definition TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "millstream_definitions" VALUES('revenue','{"@":"LogicalQuery","sql":"SELECT gem_pack, count(*) AS n, sum(price) AS revenue FROM purchases GROUP BY gem_pack, window(time, ''2 seconds'', ''1 second'')","stream":"purchases","where":null,"window":{"@":"WindowSpec","size":2000000,"slide":1000000},"keys":[{"@":"Column","name":"gem_pack","type":{"@":"DataType","kind":"integer"}}],"aggregates":[{"@":"Aggregate","function":"count","argument":null,"type":{"@":"DataType","kind":"long"}},{"@":"Aggregate","function":"sum","argument":{"@":"Column","name":"price","type":{"@":"DataType","kind":"decimal","precision":10,"scale":2}},"type":{"@":"DataType","kind":"decimal","precision":20,"scale":2}}],"having":null,"outputs":[{"@":"Output","name":"gem_pack","expression":{"@":"Column","name":"#k0","type":{"@":"DataType","kind":"integer"}}},{"@":"Output","name":"n","expression":{"@":"Column","name":"#a0","type":{"@":"DataType","kind":"long"}}},{"@":"Output","name":"revenue","expression":{"@":"Column","name":"#a1","type":{"@":"DataType","kind":"decimal","precision":20,"scale":2}}}]}');
INSERT INTO "millstream_definitions" VALUES('most','{"@":"LogicalQuery","sql":"SELECT gem_pack, max(price) AS most FROM purchases WHERE price > 20 GROUP BY gem_pack, window(time, ''3 seconds'')","stream":"purchases","where":{"@":"Call","op":"GreaterThan","args":[{"@":"Column","name":"price","type":{"@":"DataType","kind":"decimal","precision":10,"scale":2}},{"@":"Call","op":"Cast","args":[{"@":"Call","op":"Cast","args":[{"@":"Literal","value":20,"type":{"@":"DataType","kind":"integer"}}],"type":{"@":"DataType","kind":"decimal","precision":2}}],"type":{"@":"DataType","kind":"decimal","precision":10,"scale":2}}],"type":{"@":"DataType","kind":"boolean"}},"window":{"@":"WindowSpec","size":3000000,"slide":3000000},"keys":[{"@":"Column","name":"gem_pack","type":{"@":"DataType","kind":"integer"}}],"aggregates":[{"@":"Aggregate","function":"max","argument":{"@":"Column","name":"price","type":{"@":"DataType","kind":"decimal","precision":10,"scale":2}},"type":{"@":"DataType","kind":"decimal","precision":10,"scale":2}}],"having":null,"outputs":[{"@":"Output","name":"gem_pack","expression":{"@":"Column","name":"#k0","type":{"@":"DataType","kind":"integer"}}},{"@":"Output","name":"most","expression":{"@":"Column","name":"#a0","type":{"@":"DataType","kind":"decimal","precision":10,"scale":2}}}]}');
INSERT INTO "millstream_definitions" VALUES('three','{"@":"LogicalQuery","sql":"SELECT user_id, price FROM purchases WHERE user_id = 3","stream":"purchases","where":{"@":"Call","op":"EqualTo","args":[{"@":"Column","name":"user_id","type":{"@":"DataType","kind":"long"}},{"@":"Call","op":"Cast","args":[{"@":"Literal","value":3,"type":{"@":"DataType","kind":"integer"}}],"type":{"@":"DataType","kind":"long"}}],"type":{"@":"DataType","kind":"boolean"}},"window":null,"keys":[],"aggregates":[],"having":null,"outputs":[{"@":"Output","name":"user_id","expression":{"@":"Column","name":"user_id","type":{"@":"DataType","kind":"long"}}},{"@":"Output","name":"price","expression":{"@":"Column","name":"price","type":{"@":"DataType","kind":"decimal","precision":10,"scale":2}}}]}');
INSERT INTO "millstream_definitions" VALUES('gone','{"@":"LogicalQuery","sql":"SELECT count(*) AS n FROM purchases GROUP BY window(time, ''1 second'')","stream":"purchases","where":null,"window":{"@":"WindowSpec","size":1000000,"slide":1000000},"keys":[],"aggregates":[{"@":"Aggregate","function":"count","argument":null,"type":{"@":"DataType","kind":"long"}}],"having":null,"outputs":[{"@":"Output","name":"n","expression":{"@":"Column","name":"#a0","type":{"@":"DataType","kind":"long"}}}]}');
CREATE TABLE millstream_engine (
	id INTEGER NOT NULL, 
	schema_version BIGINT NOT NULL, 
	incarnation BIGINT NOT NULL, 
	holder TEXT NOT NULL, 
	opened_at BIGINT NOT NULL, 
	epoch BIGINT NOT NULL, 
	answer_seq BIGINT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "millstream_engine" VALUES(1,1,1,'vm process 9628',1794807212906039,5,11);
CREATE TABLE millstream_epochs (
	number BIGINT NOT NULL, 
	sealed_at BIGINT NOT NULL, 
	cuts TEXT NOT NULL, 
	PRIMARY KEY (number)
);
INSERT INTO "millstream_epochs" VALUES(1,1794807223322820,'{"purchases": [0, null, null]}');
INSERT INTO "millstream_epochs" VALUES(2,1794807223891206,'{"purchases": [0, null, null]}');
INSERT INTO "millstream_epochs" VALUES(3,1794807224285551,'{"purchases": [0, null, null]}');
INSERT INTO "millstream_epochs" VALUES(4,1794807224920431,'{"purchases": [0, null, null]}');
INSERT INTO "millstream_epochs" VALUES(5,1794807248029912,'{"purchases": [6, 1767225601908000, 1767225602408000]}');
CREATE TABLE millstream_group_versions (
	stream TEXT NOT NULL, 
	group_name TEXT NOT NULL, 
	version BIGINT NOT NULL, 
	epoch BIGINT NOT NULL, 
	until BIGINT NOT NULL, 
	path TEXT NOT NULL, 
	queries BIGINT NOT NULL, 
	classes BIGINT NOT NULL, 
	retired BOOLEAN NOT NULL, 
	PRIMARY KEY (stream, group_name, version)
);
INSERT INTO "millstream_group_versions" VALUES('purchases','g-1',2,2,4611686018427387904,'groups/g-1-2-3f34dbb3467b.json',2,0,0);
INSERT INTO "millstream_group_versions" VALUES('purchases','g-2',1,3,4611686018427387904,'groups/g-2-1-c7d67c76a9fa.json',1,0,0);
INSERT INTO "millstream_group_versions" VALUES('purchases','g-3',1,4,5,'groups/g-3-1-fd08daad103e.json',1,0,0);
CREATE TABLE millstream_plans (
	stream TEXT NOT NULL, 
	batch BIGINT NOT NULL, 
	epoch BIGINT NOT NULL, 
	watermark BIGINT, 
	clock BIGINT NOT NULL, 
	offsets TEXT NOT NULL, 
	PRIMARY KEY (stream, batch)
);
INSERT INTO "millstream_plans" VALUES('purchases',0,4,NULL,1794807232363057,'{"row": 0} 4f53cda18c2baa0c');
INSERT INTO "millstream_plans" VALUES('purchases',1,4,NULL,1794807239191288,'{"row": 5} 23fafb672dbd5fbd');
INSERT INTO "millstream_plans" VALUES('purchases',2,4,1767225599508000,1794807243502221,'{"row": 305} abc156935c814c1f');
INSERT INTO "millstream_plans" VALUES('purchases',3,4,1767225600108000,1794807244359240,'{"row": 605} 7821c4c6f7c07b06');
INSERT INTO "millstream_plans" VALUES('purchases',4,4,1767225600708000,1794807246685611,'{"row": 905} 0958d6fc0e554211');
INSERT INTO "millstream_plans" VALUES('purchases',5,4,1767225601308000,1794807247557554,'{"row": 1205} a92d28318bf360d7');
INSERT INTO "millstream_plans" VALUES('purchases',6,5,1767225601908000,1794807248588463,'{"row": 1505} 2fedcaf9258a78b5');
INSERT INTO "millstream_plans" VALUES('purchases',7,5,1767225602508000,1794807249608818,'{"row": 1805} c1ac0af019801860');
INSERT INTO "millstream_plans" VALUES('purchases',8,5,1767225603108000,1794807250706858,'{"row": 2105} 9a6f5ff779cd6d75');
INSERT INTO "millstream_plans" VALUES('purchases',9,5,1767225603708000,1794807251830028,'{"row": 2405} f6de024fe3dc8fc7');
INSERT INTO "millstream_plans" VALUES('purchases',10,5,1767225604308000,1794807252928137,'{"row": 2705} 6d53b10e213582e5');
INSERT INTO "millstream_plans" VALUES('purchases',11,5,1767225604908000,1794807253571210,'{"row": 3005} 3a8c048758e43840');
CREATE TABLE millstream_queries (
	id TEXT NOT NULL, 
	owner TEXT NOT NULL, 
	client_key TEXT, 
	stream TEXT NOT NULL, 
	windowed BOOLEAN NOT NULL, 
	group_name TEXT NOT NULL, 
	slot BIGINT NOT NULL, 
	epoch BIGINT NOT NULL, 
	created_at BIGINT NOT NULL, 
	first_batch BIGINT NOT NULL, 
	last_batch BIGINT, 
	fired_to BIGINT, 
	partial_until BIGINT, 
	closes_at BIGINT, 
	state TEXT NOT NULL, 
	deleted_epoch BIGINT, 
	ended_at BIGINT, 
	reason TEXT, 
	windows BIGINT NOT NULL, 
	answer_rows BIGINT NOT NULL, 
	late_rows BIGINT NOT NULL, 
	failures BIGINT NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (owner, client_key)
);
INSERT INTO "millstream_queries" VALUES('revenue','ann','k1','purchases',1,'g-1',0,1,1794807223322820,0,NULL,1767225604908000,-4611686018427387903,NULL,'running',NULL,NULL,NULL,4,16,0,0);
INSERT INTO "millstream_queries" VALUES('most','bob',NULL,'purchases',1,'g-1',1,2,1794807223891206,0,NULL,1767225604908000,-4611686018427387903,NULL,'running',NULL,NULL,NULL,1,4,0,0);
INSERT INTO "millstream_queries" VALUES('three','bob',NULL,'purchases',0,'g-2',0,3,1794807224285551,0,NULL,-4611686018427387903,-4611686018427387903,NULL,'running',NULL,NULL,NULL,0,63,0,0);
INSERT INTO "millstream_queries" VALUES('gone','bob',NULL,'purchases',1,'g-3',0,4,1794807224920431,0,5,1767225601908000,-4611686018427387903,1767225601908000,'deleted',5,1794807253396144,NULL,1,1,0,0);
CREATE TABLE millstream_streams (
	name TEXT NOT NULL, 
	position BIGINT NOT NULL, 
	definition TEXT NOT NULL, 
	lateness BIGINT NOT NULL, 
	watermark BIGINT, 
	max_time BIGINT, 
	planned BIGINT NOT NULL, 
	committed BIGINT NOT NULL, 
	rows BIGINT NOT NULL, 
	late_rows BIGINT NOT NULL, 
	rejected_rows BIGINT NOT NULL, 
	batches BIGINT NOT NULL, 
	bytes BIGINT NOT NULL, 
	closed_all BOOLEAN NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "millstream_streams" VALUES('purchases',0,'{"@":"Stream","name":"purchases","fields":[{"@":"Field","name":"user_id","type":{"@":"DataType","kind":"long"}},{"@":"Field","name":"gem_pack","type":{"@":"DataType","kind":"integer"}},{"@":"Field","name":"price","type":{"@":"DataType","kind":"decimal","precision":10,"scale":2}},{"@":"Field","name":"time","type":{"@":"DataType","kind":"timestamp"}}],"time":"time","lateness":500000,"source":[["began","1794807238505453"],["density","500"],["disorder","0"],["gem_packs","4"],["max_rows_per_batch","300"],["rate","500"],["rows","4500"],["seed","7"],["source","gaming"],["start","1767225600000000"],["table","purchases"],["users","20"]]}',500000,1767225605508000,1767225606008000,11,11,3005,0,0,12,108180,0);
CREATE INDEX millstream_queries_cut ON millstream_queries (stream, first_batch);
CREATE INDEX millstream_queries_state ON millstream_queries (stream, state);
CREATE INDEX millstream_group_versions_until ON millstream_group_versions (stream, until);
CREATE INDEX millstream_bucket_files_stream ON millstream_bucket_files (stream, batch);
CREATE INDEX millstream_answers_stream ON millstream_answers (stream, seq);
