"""Training tools: language, devops, media."""

from __future__ import annotations

from unmask.train.tooldata.records import ToolSpec, tool

TOOLS: tuple[ToolSpec, ...] = (
    tool(
        "translate",
        "language",
        "translate_text to_language text_translation",
        "Translate text.|Translate into another language.",
        "text:phrase:phrase,content,source_text language:language:target,to,target_language",
        """
        translate "{text}" (to|into) {language}
        How do you say "{text}" in {language}?
        What is "{text}" in {language}?
        say "{text}" in {language}
        I need "{text}" in {language}
        Translate to {language}: {text}
        """,
        """
        What would a {language} speaker say for "{text}"?
        put "{text}" into {language} words
        """,
        result="translation=word",
        reports='In {language} it is "{translation}".',
    ),
    tool(
        "define_word",
        "language",
        "word_definition dictionary_lookup get_meaning",
        "Define an English word.|Dictionary entry.",
        "word:word:term,entry,lookup",
        """
        What does {word} mean?
        define {word}
        What is the meaning of {word}?
        look up the word {word} in the dictionary
        give me a definition of "{word}"
        Definition of {word}
        """,
        """
        I came across {word}, explain the word
        Can you tell me what somebody means by "{word}"?
        """,
        result="kind==adjective synonym=word",
        reports="It means {synonym}.\n{word} means {synonym}.",
        clash="dictionary",
    ),
    tool(
        "get_rhymes",
        "language",
        "find_rhymes rhyme_words rhyming",
        "Find rhymes for a word.|Words that rhyme.",
        "word:word:term,with_word,base ?count:count:limit,how_many,number",
        """
        What rhymes with {word}?
        find[ {count}] rhymes for {word}
        give me[ {count}] words that rhyme with {word}
        I need[ {count}] rhymes for {word}
        Rhymes for {word}
        list[ {count}] words rhyming with {word}
        """,
        """
        My poem has {word}, which[ {count}] words sound like it at the end?
        come up with[ {count}] rhyming words for {word}
        """,
        result="best=word count=int:2:9",
        reports="The best rhyme is {best}.",
    ),
    tool(
        "restart_service",
        "devops",
        "service_restart reboot_service bounce_service",
        "Restart a service.|Restart a running service.",
        "service:service:name,app,component ?environment:environment:env,stage,target",
        """
        restart {service}[ in {environment}]
        reboot the {service} service[ on {environment}]
        The {service} service hangs[ in {environment}], restart it
        I need {service} restarted[ in {environment}]
        do a restart of {service}[ in {environment}]
        Restart the service {service}[ in {environment}] now
        """,
        """
        bounce {service}[ in {environment}]
        turn the {service} service off and on again[ in {environment}]
        """,
        result="status==running seconds=int:2:50",
        reports="{service} is running again after {seconds} seconds.",
    ),
    tool(
        "get_logs",
        "devops",
        "fetch_logs tail_logs read_logs",
        "Get the last log lines.|Read service logs.",
        "service:service:name,source,app lines:lines:count,limit,tail",
        """
        show me the last {lines} log lines of {service}
        get {lines} lines of logs from {service}
        I need the last {lines} lines of the {service} logs
        tail {lines} lines of the {service} log
        Logs of {service}, last {lines} lines
        What are the last {lines} log lines of {service}?
        """,
        """
        pull {lines} recent log entries for {service}
        Let me read what {service} logged, {lines} lines will do
        """,
        result="errors=int:0:14 last=bug",
        reports="There are {errors} errors, the last one is: {last}.",
    ),
    tool(
        "create_issue",
        "devops",
        "open_ticket file_bug report_issue",
        "Open an issue in a repository.|File a bug report.",
        "title:bug:summary,headline,problem repo:repo:repository,project,codebase "
        "?labels:label_list:tags,marks,categories",
        """
        open an issue in {repo}: {title}
        create an issue in {repo} titled "{title}"[ with labels {labels}]
        file a bug in {repo}[ with the labels {labels}]: {title}
        Issue for {repo}: {title}
        report "{title}" as an issue in {repo}[, labels {labels}]
        I found a bug in {repo}: {title}
        """,
        """
        log a ticket against {repo} saying "{title}"[, tagged {labels}]
        Something is broken in {repo}, write it up as "{title}"
        """,
        result="number=int:20:900 status==open",
        reports="I opened issue {number} in {repo}.",
    ),
    tool(
        "deploy",
        "devops",
        "release_version ship_release deploy_version",
        "Deploy a version of a service.|Release software.",
        "service:service:app,name,component version:version:release,build,tag environment:environment:env,stage,to",
        """
        deploy {service} {version} to {environment}
        roll out version {version} of {service} to {environment}
        release {version} of {service} on {environment}
        I want {service} {version} deployed to {environment}
        On {environment}, deploy {version} of {service}
        ship {service} version {version} to {environment}
        """,
        """
        get {version} of {service} live on {environment}
        From now on {environment} should run {service} at {version}
        """,
        result="status==deployed seconds=int:20:300",
        reports="{service} {version} was deployed in {seconds} seconds.",
    ),
    tool(
        "scale_service",
        "devops",
        "set_replicas scale_app resize_service",
        "Set the number of replicas.|Scale a service.",
        "service:service:app,name,component replicas:count:instances,copies,num_replicas",
        """
        scale {service} to {replicas} replicas
        run {replicas} instances of {service}
        set {service} to {replicas} replicas
        I need {replicas} replicas of {service}
        Scale up {service}, {replicas} replicas in total
        change the number of {service} instances to {replicas}
        """,
        """
        make sure {replicas} copies of {service} are up
        We expect traffic, give {service} {replicas} pods
        """,
        result="ready=int:1:9 status==scaling",
        reports="{service} is scaling, {ready} replicas are ready.",
    ),
    tool(
        "get_news",
        "media",
        "news_search latest_news headlines",
        "Get news about a topic.|Latest headlines.",
        "topic:topic:about,subject,query ?count:count:limit,num_articles,how_many",
        """
        What's the latest news (on|about) {topic}?
        (show|get) me[ {count}] news articles about {topic}
        give me[ {count}] headlines about {topic}
        Any news on {topic}?
        I want to read[ {count}] news stories about {topic}
        find[ {count}] recent articles on {topic}
        """,
        """
        What has been happening with {topic} lately?
        catch me up on {topic}[ with {count} stories]
        """,
        result="headline=bug articles=int:2:30",
        reports="I found {articles} articles about {topic}.",
    ),
    tool(
        "get_showtimes",
        "media",
        "movie_times cinema_times find_screenings",
        "Get movie showtimes in a city.|Cinema schedule.",
        "movie:movie:film,title,movie_name city:city:place,town,location ?date:date:day,on_date,when",
        """
        When is {movie} playing in {city}[ on {date}]?
        find showtimes for {movie} in {city}[ on {date}]
        Where can I see {movie} in {city}[ on {date}]?
        get movie times for {movie} in {city}[ on {date}]
        I want to see {movie} at a cinema in {city}[ on {date}]
        Showtimes of {movie} in {city}[ on {date}]
        """,
        """
        Are any theaters in {city} screening {movie}[ on {date}]?
        We'd love to catch {movie} on the big screen in {city}[ on {date}]
        """,
        result="cinema=restaurant starts=time",
        reports="{movie} starts at {starts} at {cinema}.",
    ),
    tool(
        "get_score",
        "media",
        "match_score game_result team_score",
        "Get the latest score of a team.|Last game result.",
        "team:team:club,side,team_name",
        """
        What's the score of the {team} game?
        Did {team} win?
        How did {team} do in the last game?
        get the latest {team} score
        tell me the result of the {team} match
        Score of the last {team} game
        """,
        """
        How did it go for {team} last night?
        find out whether {team} won or lost
        """,
        result="own=int:0:5 other=int:0:5 opponent=team",
        reports="The score against {opponent} was {own} to {other}.",
    ),
    tool(
        "search_books",
        "media",
        "book_search find_books books_by",
        "Search books by author.|Find books.",
        "author:author:writer,by,author_name ?max_results:count:limit,count,how_many",
        """
        find[ {max_results}] books by {author}
        What books did {author} write?
        search for[ {max_results}] books by {author}
        show me[ {max_results}] novels by {author}
        I want to read something by {author}
        list[ {max_results}] books written by {author}
        """,
        """
        Which titles has {author} published?
        name[ {max_results}] works from the pen of {author}
        """,
        result="title=book year=int:1850:2020",
        reports="One book by {author} is {title} from {year}.",
    ),
)
